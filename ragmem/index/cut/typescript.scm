; After ecma.scm.
(public_field_definition
  name: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @function
(abstract_class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @interface
(enum_declaration name: (_) @name body: (_) @body) @class
(type_alias_declaration name: (_) @name) @type
(internal_module name: (_) @name body: (_) @body) @module
(module name: (_) @name body: (_) @body) @module
(expression_statement (internal_module name: (_) @name)) @outer
(ambient_declaration (_ name: (_) @name)) @outer
(function_signature name: (_) @name) @declaration
(abstract_method_signature name: (_) @name) @declaration
(import_statement (import_require_clause source: (string) @module)) @import
