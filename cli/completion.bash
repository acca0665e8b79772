# Completion for bash: commands and options as the tool's own help lists them, else names of files.
_finegemm() {
    local current=${COMP_WORDS[COMP_CWORD]} words=
    if [ "$COMP_CWORD" = 1 ]; then
        words=$("$1" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
    elif [[ $current == -* ]]; then
        words=$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null | sed -n 's/^  \(-h,\)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _finegemm finegemm
