; What JavaScript and TypeScript share.
(function_declaration name: (_) @name body: (_) @body) @function
(generator_function_declaration name: (_) @name body: (_) @body) @function
(method_definition name: (_) @name body: (_) @body) @function
(class_declaration name: (_) @name body: (_) @body) @class
(export_statement "default" @name value: (class !name body: (_) @body)) @class
(export_statement "default" @name
  value: [(arrow_function body: (_) @body) (function_expression !name body: (_) @body)]) @function
(export_statement "default"
  value: (function_expression name: (_) @name body: (_) @body)) @function
(export_statement declaration: (_ name: (_) @name)) @outer
(export_statement declaration: (_ (variable_declarator name: (identifier) @name))) @outer

(lexical_declaration (variable_declarator
  name: (identifier) @name
  value: [
    (arrow_function body: (_) @body)
    (function_expression body: (_) @body)
    (generator_function body: (_) @body)
  ])) @function
(variable_declaration (variable_declarator
  name: (identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @function
(lexical_declaration (variable_declarator
  name: (identifier) @name value: (class body: (_) @body))) @class
; React.memo(() => …), debounce(function …)
(program (lexical_declaration (variable_declarator
  name: (identifier) @name
  value: (call_expression arguments: (arguments
    . [(arrow_function body: (_) @body) (function_expression body: (_) @body)])))) @function)
(export_statement declaration: (lexical_declaration (variable_declarator
  name: (identifier) @name
  value: (call_expression arguments: (arguments
    . [(arrow_function body: (_) @body) (function_expression body: (_) @body)]))))) @function

(expression_statement (assignment_expression
  left: [(identifier) (member_expression)] @name
  right: [
    (arrow_function body: (_) @body)
    (function_expression body: (_) @body)
    (generator_function body: (_) @body)
  ])) @function
(expression_statement (assignment_expression
  left: [(identifier) (member_expression)] @name right: (class body: (_) @body))) @class
(pair
  key: [(property_identifier) (string)] @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @inline

(program (lexical_declaration (variable_declarator name: (identifier) @name)) @constant)
(export_statement
  declaration: (lexical_declaration (variable_declarator name: (identifier) @name))) @exported

(call_expression
  function: [
    (identifier) @tester
    (member_expression object: (identifier) @tester)
    (call_expression function: (member_expression object: (identifier) @tester))
  ]
  arguments: (arguments
    . [(string) (template_string)] @name
    [(arrow_function body: (_) @body) (function_expression body: (_) @body)])) @tested
(expression_statement (call_expression
  arguments: (arguments . [(string) (template_string)] @name))) @outer

(call_expression function: [
  (identifier) @call
  (member_expression property: (property_identifier) @call)
])
(new_expression constructor: [
  (identifier) @call
  (member_expression property: (property_identifier) @call)
])

(import_statement source: (string) @module) @import
(export_statement source: (string) @module) @import
(call_expression
  function: [(identifier) @required (import)] arguments: (arguments . (string) @module .))
(lexical_declaration (variable_declarator
  value: [
    (call_expression function: (identifier) @required)
    (member_expression object: (call_expression function: (identifier) @required))
  ])) @skip
(decorator) @above
