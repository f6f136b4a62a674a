import type { Writable } from 'node:stream';
import { PROGRAM } from '../help.ts';
import { REGISTRY } from '../registry.ts';
import { complete, SHELLS, type Completion, type Shell } from './candidates.ts';
import { SCRIPTS } from './scripts.ts';

const HELP = `${PROGRAM} completion: print a script that completes command lines.

Usage:
  ${PROGRAM} completion bash|zsh|fish|powershell

The script asks the program what may stand at the cursor, so it does not have to be made anew.

Examples:
  # bash, for this shell; put the line into ~/.bashrc for all
  source <(${PROGRAM} completion bash)
  # zsh, after compinit
  source <(${PROGRAM} completion zsh)
  # fish
  ${PROGRAM} completion fish > ~/.config/fish/completions/${PROGRAM}.fish
  # PowerShell, in $PROFILE
  ${PROGRAM} completion powershell | Out-String | Invoke-Expression
`;

/**
 * Carries out the command `completion`, without that word; returns the exit code. The scripts say
 * `query` with the arguments before the cursor and the one at it.
 */
export function runCompletion(
  argv: readonly string[],
  { stdout, stderr }: { readonly stdout: Writable; readonly stderr: Writable },
): number {
  const [first, ...rest] = argv;
  if (first === 'query') {
    const [before, current] = [rest.slice(0, -1), rest.at(-1) ?? ''];
    stdout.write(linesOf(complete(before, current === '""' ? '' : current, REGISTRY)));
    return 0;
  }
  if (first === '--help' || first === '-h') {
    stdout.write(HELP);
    return 0;
  }
  if (!isShell(first) || rest.length > 0) {
    const shells = SHELLS.join(', ');
    stderr.write(`${PROGRAM}: completion is for one shell of ${shells} (KPNG_USAGE)\n`);
    return 2;
  }
  stdout.write(SCRIPTS[first]);
  return 0;
}

function linesOf({ candidates, files }: Completion): string {
  if (files) return ':files\n';
  return candidates
    .map(({ value, summary }) => (summary === '' ? `${value}\n` : `${value}\t${summary}\n`))
    .join('');
}

function isShell(word: string | undefined): word is Shell {
  return SHELLS.some((shell) => shell === word);
}
