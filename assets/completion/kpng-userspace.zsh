#compdef kpng-userspace kpng
# source <(kpng-userspace completion zsh), or a file _kpng-userspace in a folder of $fpath
_kpng_userspace() {
  local -a found
  local line value text
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      [[ -prefix *= ]] && compset -P '*='
      _files
      return
    fi
    value=${line%%$'\t'*}
    text=${line#*$'\t'}
    found+=("${value//:/\\:}:$text")
  done < <("${words[1]}" completion query "${(@)words[2,CURRENT-1]}" "${words[CURRENT]}" 2>/dev/null)
  _describe -V kpng-userspace found
}
if [[ $funcstack[1] == _kpng_userspace || $funcstack[1] == _kpng-userspace ]]; then
  _kpng_userspace "$@"
else
  compdef _kpng_userspace kpng-userspace kpng
fi
