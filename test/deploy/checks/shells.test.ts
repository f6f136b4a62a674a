/** The scripts for completion, in real shells. */
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { shortDir } from '../../support/short-dir.ts';
import { missing, run } from '../support/toolbox.ts';

const MAIN = new URL('../../../bin/kpng-userspace.js', import.meta.url).pathname;

type Shell = 'bash' | 'zsh' | 'fish' | 'powershell';

/** A folder with the program under its name, first on the PATH, and a file to find. */
function setup(t: Test, shell: Shell) {
  const folder = shortDir(t);
  mkdirSync(join(folder, 'bin'));
  const program = join(folder, 'bin', 'kpng-userspace');
  const line = `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`;
  writeFileSync(program, line, { mode: 0o755 });
  symlinkSync(program, join(folder, 'bin', 'kpng'));
  const script = new URL(`../../../assets/completion/kpng-userspace.${shell}`, import.meta.url);
  copyFileSync(script, join(folder, 'script'));
  writeFileSync(join(folder, 'state.yaml'), '');
  const PATH = `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}`;
  return { cwd: folder, env: { ...process.env, PATH, HOME: folder } };
}

/** What the shell offers for a line with the cursor at its end. */
const ASK: Partial<Record<Shell, (line: string) => readonly string[]>> = {
  bash: (line) => [
    'bash',
    '--norc',
    '-c',
    `source ./script; COMP_LINE=$1; COMP_POINT=\${#1}; _kpng_userspace; printf '%s\\n' "\${COMPREPLY[@]}"`,
    'bash',
    line,
  ],
  fish: (line) => ['fish', '--no-config', '-c', `source ./script; complete -C "${line}"`],
};

const LINES: readonly (readonly [string, RegExp])[] = [
  ['kpng-userspace ku', /^kube\b/m],
  ['kpng file to-local to-userspace --handover-s', /^--handover-socket\b/m],
  ['kpng-userspace local to-userspace --portal nft', /^nftables\b/m],
  ['kpng-userspace file --input st', /^state\.yaml\b/m],
];

for (const [shell, ask] of Object.entries(ASK) as [Shell, (line: string) => string[]][]) {
  const skip = missing(shell);
  t.test(`${shell} completes words, flags, values and files`, { skip }, async (t) => {
    const where = setup(t, shell);
    for (const [line, expected] of LINES) {
      const [file = '', ...args] = ask(line);
      t.match((await run(file, args, where)).stdout, expected, line);
    }
  });
}

t.test('bash replaces only what follows the equals sign', { skip: missing('bash') }, async (t) => {
  const where = setup(t, 'bash');
  const [file = '', ...args] = ASK.bash?.('kpng local to-userspace --portal=nf') ?? [];
  t.equal((await run(file, args, where)).stdout, 'nftables\n');
});

t.test('zsh can read its script', { skip: missing('zsh') }, async (t) => {
  const where = setup(t, 'zsh');
  const line = 'autoload -U compinit; compinit -u -D; source ./script; print $_comps[kpng]';
  t.equal((await run('zsh', ['-f', '-c', line], where)).stdout, '_kpng_userspace\n');
});
