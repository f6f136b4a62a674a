# fish completion for kpng-userspace
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
complete -c kpng-userspace -f -a '(__kpng_userspace_complete)'
complete -c kpng -f -a '(__kpng_userspace_complete)'
