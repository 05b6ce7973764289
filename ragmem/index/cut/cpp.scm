; After c.scm.
(function_definition
  declarator: (reference_declarator (function_declarator declarator: (_) @name))
  body: (_) @body) @function
(class_specifier name: (_) @name body: (_) @body) @class
(alias_declaration name: (_) @name) @type
(concept_definition name: (_) @name) @type
(namespace_definition name: (_) @name body: (_) @body) @namespace
(template_declaration [
  (class_specifier name: (_) @name)
  (struct_specifier name: (_) @name)
  (alias_declaration name: (_) @name)
  (concept_definition name: (_) @name)
  (function_definition declarator: [
    (function_declarator declarator: (_) @name)
    (pointer_declarator declarator: (function_declarator declarator: (_) @name))
    (reference_declarator (function_declarator declarator: (_) @name))
  ])
  (declaration declarator: (function_declarator declarator: (_) @name))
]) @outer

(call_expression function: [
  (qualified_identifier name: (identifier) @call)
  (qualified_identifier name: (qualified_identifier name: (identifier) @call))
  (qualified_identifier name: (template_function name: (_) @call))
  (template_function name: (identifier) @call)
  (field_expression field: (template_method name: (_) @call))
])
(new_expression type: [(type_identifier) @call (qualified_identifier name: (type_identifier) @call)])
(using_declaration) @skip
