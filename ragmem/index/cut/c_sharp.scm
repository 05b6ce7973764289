(class_declaration name: (_) @name body: (_) @body) @class
(struct_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @interface
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name) @class
(record_declaration name: (_) @name body: (_) @body) @class
(method_declaration name: (_) @name body: (_) @body) @function
(method_declaration !body name: (_) @name) @declaration
(constructor_declaration name: (_) @name body: (_) @body) @function
(destructor_declaration name: (_) @name body: (_) @body) @inline
(property_declaration name: (_) @name accessors: (_) @body) @inline
(local_function_statement name: (_) @name body: (_) @body) @function
(delegate_declaration name: (_) @name) @type
(namespace_declaration name: (_) @name body: (_) @body) @namespace
(file_scoped_namespace_declaration name: (_) @name) @prefix

(invocation_expression function: [
  (identifier) @call
  (member_access_expression name: [(identifier) @call (generic_name (identifier) @call)])
  (conditional_access_expression (member_binding_expression name: (identifier) @call))
  (generic_name (identifier) @call)
])
(object_creation_expression type: [
  (identifier) @call
  (generic_name (identifier) @call)
  (qualified_name name: (identifier) @call)
])

(using_directive) @skip
(file_scoped_namespace_declaration) @skip
