# bash completion for kpng-userspace
# source <(kpng-userspace completion bash)
_kpng_userspace() {
  local line=${COMP_LINE:0:COMP_POINT} words current candidate text
  read -ra words <<<"$line"
  current=
  if [[ $line != *[[:space:]] && ${#words[@]} -gt 1 ]]; then
    current=${words[-1]}
    unset 'words[-1]'
  fi
  COMPREPLY=()
  # Where "=" parts words, bash replaces only what follows it.
  local typed=
  if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then typed=${current%%=*}=; fi
  while IFS=$'\t' read -r candidate text; do
    if [[ $candidate == :files ]]; then
      compopt -o default 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "${current#"$typed"}")
    else
      COMPREPLY+=("${candidate#"$typed"}")
    fi
  done < <("${words[0]}" completion query "${words[@]:1}" "$current" 2>/dev/null)
}
complete -F _kpng_userspace kpng-userspace kpng
