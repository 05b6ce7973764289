(function_definition name: (_) @name body: (_) @body) @function
(method_declaration name: (_) @name body: (_) @body) @function
(method_declaration !body name: (_) @name) @declaration
(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @interface
(trait_declaration name: (_) @name body: (_) @body) @interface
(enum_declaration name: (_) @name body: (_) @body) @class
(program (const_declaration (const_element . (name) @name)) @exported)
(namespace_definition name: (_) @name body: (_) @body) @namespace
(namespace_definition !body name: (_) @name) @prefix

(function_call_expression function: [(name) @call (qualified_name (name) @call)])
(member_call_expression name: (name) @call)
(nullsafe_member_call_expression name: (name) @call)
(scoped_call_expression name: (name) @call)
(object_creation_expression [(name) @call (qualified_name (name) @call)])

(expression_statement [
  (require_expression) (require_once_expression) (include_expression) (include_once_expression)
]) @import
(namespace_definition !body) @skip
(namespace_use_declaration) @skip
(php_tag) @skip
