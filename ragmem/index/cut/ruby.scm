(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(method name: (_) @name body: (_) @body) @function
(singleton_method name: (_) @name body: (_) @body) @function
(class name: (_) @name) @class
(class name: (_) @name body: (_) @body) @class
(module name: (_) @name) @module
(module name: (_) @name body: (_) @body) @module
(assignment left: (constant) @name) @exported
(call
  method: (identifier) @tester
  arguments: (argument_list . [(string) (constant) (scope_resolution)] @name)
  block: (do_block body: (_) @body)) @tested

(call method: (identifier) @call)
(call receiver: [(constant) @call (scope_resolution name: (constant) @call)]
  method: (identifier) @made)

(call method: (identifier) @required arguments: (argument_list . (string) @module .)) @import
