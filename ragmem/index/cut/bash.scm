(function_definition name: (_) @name body: (_) @body) @function
(program (variable_assignment name: (_) @name) @constant)
(program (declaration_command (variable_assignment name: (_) @name)) @constant)

(command name: (command_name (word) @call))
