(function_definition name: (identifier) @name body: (block) @body) @function
(class_definition name: (identifier) @name body: (block) @body) @class
(decorated_definition definition: (_ name: (identifier) @name)) @outer
(type_alias_statement left: (type [(identifier) @name (generic_type (identifier) @name)])) @type
(module (expression_statement (assignment left: (identifier) @name)) @constant)
; A docstring below a constant belongs to it.
(module (expression_statement (assignment left: (identifier) @name)) @outer
  . (expression_statement . (string) @tail .))

(call function: [(identifier) @call (attribute attribute: (identifier) @call)])
(decorator [(identifier) @call (attribute attribute: (identifier) @call)])

(import_statement) @import
(import_from_statement) @import
(future_import_statement) @skip
