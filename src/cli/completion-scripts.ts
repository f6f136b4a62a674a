/**
 * Shell scripts that complete command lines. They ask the program for candidates and know nothing about flags. The
 * program prints one candidate per line, followed by a tab and a description; the line `:files` stands for any file.
 */

/** Names of the program; the scripts call `kpng-userspace completion query BEFORE... CURRENT`. */
const NAMES = ['kpng-userspace', 'kpng'];

const BASH = `# bash completion for kpng-userspace
# source <(kpng-userspace completion bash)
_kpng_userspace() {
  local line=\${COMP_LINE:0:COMP_POINT} words current candidate text
  read -ra words <<<"$line"
  current=
  if [[ $line != *[[:space:]] && \${#words[@]} -gt 1 ]]; then
    current=\${words[-1]}
    unset 'words[-1]'
  fi
  COMPREPLY=()
  # Where "=" parts words, bash replaces only what follows it.
  local typed=
  if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then typed=\${current%%=*}=; fi
  while IFS=$'\\t' read -r candidate text; do
    if [[ $candidate == :files ]]; then
      compopt -o default 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "\${current#"$typed"}")
    else
      COMPREPLY+=("\${candidate#"$typed"}")
    fi
  done < <("\${words[0]}" completion query "\${words[@]:1}" "$current" 2>/dev/null)
}
complete -F _kpng_userspace ${NAMES.join(' ')}
`;

const ZSH = `#compdef ${NAMES.join(' ')}
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
    value=\${line%%$'\\t'*}
    text=\${line#*$'\\t'}
    found+=("\${value//:/\\\\:}:$text")
  done < <("\${words[1]}" completion query "\${(@)words[2,CURRENT-1]}" "\${words[CURRENT]}" 2>/dev/null)
  _describe -V kpng-userspace found
}
if [[ $funcstack[1] == _kpng_userspace || $funcstack[1] == _kpng-userspace ]]; then
  _kpng_userspace "$@"
else
  compdef _kpng_userspace ${NAMES.join(' ')}
fi
`;

const FISH = `# fish completion for kpng-userspace
# kpng-userspace completion fish | source
function __kpng_userspace_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] completion query $words[2..-1] "$current" 2>/dev/null)
    if test "$line" = ":files"
      __fish_complete_path (string replace -r '^-[^=]*=' '' -- "$current")
    else
      echo $line
    end
  end
end
${NAMES.map((name) => `complete -c ${name} -f -a '(__kpng_userspace_complete)'`).join('\n')}
`;

const POWERSHELL = `# PowerShell completion for kpng-userspace
# kpng-userspace completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName ${NAMES.map((name) => `'${name}'`).join(', ')} -ScriptBlock {
  param($wordToComplete, $commandAst, $cursorPosition)
  $words = @($commandAst.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
  $before = @($words | Select-Object -Skip 1)
  # An empty argument would get lost on its way to the program.
  $current = if ($wordToComplete -eq '') { '""' } else { $wordToComplete }
  & $words[0] completion query @before $current 2>$null | ForEach-Object {
    $value, $text = $_ -split "\`t", 2
    if ($value -eq ':files') {
      Get-ChildItem -Path "$wordToComplete*" -ErrorAction SilentlyContinue | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_.Name, $_.Name, 'ProviderItem', $_.FullName)
      }
    } else {
      $tip = if ($text) { $text } else { $value }
      [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $tip)
    }
  }
}
`;

export const SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: BASH,
  zsh: ZSH,
  fish: FISH,
  powershell: POWERSHELL,
};

export const SHELLS = ['bash', 'zsh', 'fish', 'powershell'] as const;
export type Shell = (typeof SHELLS)[number];
