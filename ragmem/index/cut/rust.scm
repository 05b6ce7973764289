(function_item name: (_) @name body: (_) @body) @function
(function_signature_item name: (_) @name) @declaration
(macro_definition name: (_) @name) @function
(struct_item name: (_) @name) @class
(struct_item name: (_) @name body: (_) @body) @class
(enum_item name: (_) @name body: (_) @body) @class
(union_item name: (_) @name body: (_) @body) @class
(trait_item name: (_) @name body: (_) @body) @interface
(impl_item !trait type: (_) @name body: (_) @body) @impl
(impl_item trait: (_) @trait type: (_) @name body: (_) @body) @impl
(mod_item name: (_) @name body: (_) @body) @module
(type_item name: (_) @name) @type
(const_item name: (_) @name) @exported
(static_item name: (_) @name) @exported

(call_expression function: [
  (identifier) @call
  (field_expression field: (field_identifier) @call)
  (scoped_identifier name: (_) @call)
  (generic_function function: [
    (identifier) @call
    (field_expression field: (field_identifier) @call)
    (scoped_identifier name: (_) @call)
  ])
])
(struct_expression name: [(type_identifier) @call (scoped_type_identifier name: (_) @call)])
(macro_invocation macro: [(identifier) @call (scoped_identifier name: (_) @call)])

(use_declaration) @import
(mod_item !body) @import
(extern_crate_declaration) @skip
(inner_attribute_item) @skip
(attribute_item) @above
