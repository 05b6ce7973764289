(function_declaration name: (_) @name body: (_) @body) @function
(method_declaration
  receiver: (parameter_list (parameter_declaration type: (_) @owner))
  name: (_) @name body: (_) @body) @function
(type_spec name: (_) @name type: (struct_type (field_declaration_list) @body)) @class
(type_spec name: (_) @name type: (interface_type)) @interface
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
; Only a declaration of a single type: in a group, each type has its own lines.
(type_declaration . "type" . [(type_spec name: (_) @name) (type_alias name: (_) @name)] .) @outer
(source_file (const_declaration . "const" . "("? . (const_spec . name: (_) @name)) @exported)
(source_file (var_declaration . "var" . (var_spec . name: (_) @name) .) @constant)

(call_expression function: [
  (identifier) @call
  (selector_expression field: (_) @call)
  (index_expression operand: (identifier) @call)
  (parenthesized_expression [(identifier) @call (selector_expression field: (_) @call)])
])
(composite_literal type: [(type_identifier) @call (qualified_type name: (_) @call)])

(import_spec path: (_) @module)
(import_declaration) @skip
(package_clause) @skip
