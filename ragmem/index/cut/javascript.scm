; After ecma.scm.
(field_definition
  property: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @function
(expression_statement (string)) @skip
