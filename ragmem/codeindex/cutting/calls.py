"""Names that are called so commonly that they tell nothing."""

_COMMON: dict[str, str] = {
    "python": """
        print len str int float bool list dict set tuple frozenset bytes range enumerate zip map
        filter sorted reversed min max sum any all abs round isinstance issubclass hasattr getattr
        setattr type super iter next open repr format join append extend items keys values get pop
        split strip startswith endswith replace lower upper encode decode add update copy insert
        remove sort index count property staticmethod classmethod ValueError TypeError KeyError
        RuntimeError AssertionError NotImplementedError Exception cast id vars hash callable
        rstrip lstrip setdefault object""",
    "ecma": """
        log error warn info require push pop map filter forEach reduce join split slice splice
        indexOf includes toString String Number Boolean Array Object keys values entries assign
        then catch finally resolve reject Promise Error TypeError Map Set Date parseInt parseFloat
        isArray test match replace trim concat find some every sort call apply bind get set has
        add delete stringify parse toLowerCase toUpperCase startsWith endsWith length Symbol super
        expect describe it toBe toEqual freeze next from of""",
    "go": """
        len cap make new append copy panic recover delete close print println string int int64
        int32 uint64 byte float64 bool error Errorf Sprintf Printf Println Fprintf Error String
        Fatal Fatalf Log Logf Done Lock Unlock RLock RUnlock min max""",
    "rust": """
        Some None Ok Err unwrap expect clone into from to_string iter collect map new len push
        println eprintln print format vec panic assert assert_eq assert_ne as_ref as_str to_owned
        unwrap_or is_some is_none is_empty write writeln Box String Vec default iter_mut
        into_iter and_then map_err ok unwrap_or_else unwrap_or_default as_mut matches debug_assert
        todo unreachable unimplemented Self""",
    "java": """
        println print printf equals hashCode toString get set add put size isEmpty length format
        valueOf of append String IllegalArgumentException IllegalStateException RuntimeException
        ArrayList HashMap HashSet List Object contains containsKey remove stream collect map filter
        toList asList charAt substring super""",
    "c": """
        printf fprintf sprintf snprintf malloc calloc realloc free memcpy memset memcmp memmove
        strlen strcmp strncmp strcpy strncpy strdup strcat assert sizeof exit abort size begin end
        push_back emplace_back empty c_str move forward make_unique make_shared get static_cast
        dynamic_cast reinterpret_cast const_cast str data length at find insert erase clear string
        to_string vector pair make_pair swap min max""",
    "c_sharp": """
        WriteLine Write ToString Equals GetHashCode nameof typeof Add ToList ToArray Select Where
        Any First FirstOrDefault Count Contains ConfigureAwait Format IsNullOrEmpty List Dictionary
        ArgumentNullException ArgumentException InvalidOperationException Exception Task""",
    "ruby": """
        puts print p require require_relative include extend attr_reader attr_accessor attr_writer
        new raise each map select reject nil? empty? to_s to_i to_sym to_a join split first last
        freeze private protected public lambda proc loop size length push is_a? respond_to? dup
        merge include? any? all? key? keys values format sprintf gsub sub strip call send describe
        it context expect to let before""",
    "php": """
        isset empty count strlen array_map array_filter array_merge in_array is_array is_null
        is_string implode explode sprintf printf str_replace substr trim array_keys array_values
        json_encode json_decode define array_key_exists strpos parent self static Exception
        InvalidArgumentException RuntimeException""",
    "bash": """
        echo printf cd local export return exit set unset shift test true false read source eval
        cat grep sed awk cut tr sort head tail rm mkdir cp mv ls touch chmod exec trap wait kill
        sleep let declare readonly type command find xargs dirname basename pwd""",
}
for _same in ("javascript", "typescript", "tsx"):
    _COMMON[_same] = _COMMON["ecma"]
_COMMON["cpp"] = _COMMON["c"]
COMMON: dict[str, frozenset[str]] = {
    language: frozenset(names.split()) for language, names in _COMMON.items()
}
