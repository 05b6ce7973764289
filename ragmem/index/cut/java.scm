(class_declaration name: (_) @name body: (_) @body) @class
(interface_declaration name: (_) @name body: (_) @body) @interface
(enum_declaration name: (_) @name body: (_) @body) @class
(record_declaration name: (_) @name body: (_) @body) @class
(annotation_type_declaration name: (_) @name body: (_) @body) @interface
(method_declaration name: (_) @name body: (_) @body) @function
(method_declaration !body name: (_) @name) @declaration
(constructor_declaration name: (_) @name body: (_) @body) @function
(compact_constructor_declaration name: (_) @name body: (_) @body) @function

(method_invocation name: (_) @call)
(object_creation_expression type: [
  (type_identifier) @call
  (generic_type . (type_identifier) @call)
  (scoped_type_identifier (type_identifier) @call .)
])
(method_reference (identifier) @call .)

(import_declaration) @import
(package_declaration) @skip
