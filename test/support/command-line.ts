/** Whether a command line that a page shows could be typed: what of it is ours is really there. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from '../../src/cli/parse.ts';

const root = join(import.meta.dirname, '..', '..');

/** Our executables, and the words that each stands for. */
const OURS: Readonly<Record<string, readonly string[]>> = {
  'kpng-userspace': [],
  kpng: [],
  'kpng-json': ['local', 'to-json'],
  'kpng-callout': ['local', 'to-callout'],
  winuserspace: ['local', 'to-winuserspace'],
};

/** What pages may show besides: of these, paths and units are looked at. */
const OTHERS = new Set(
  (
    'apt-get cat curl docker echo export go grep grpcurl hadolint helm install ip iptables jq kubectl ln mkdir nft npx nssm ' +
    'promtool source ssh sudo sysctl systemctl systemd-analyze unset'
  ).split(' '),
);

/** Paths of the checkout begin so. */
const FOLDERS =
  /^(?:\.\/)?(?:bench|bin|deploy|docs|examples|schema|src|test|tools)\/|^Dockerfile\.|^\.ci\//;

/** What is wrong with a line of a shell. Empty: nothing. */
export function problemsOf(line: string): string[] {
  return line
    .replace(/(?:^|\s)#.*$/, '')
    .replaceAll(/<\(([^)]*)\)/g, '; $1;')
    .split(/\s(?:\||&&|;|&)(?=\s|$)|;(?=\s|$)/)
    .flatMap((command) => {
      const [given = ''] = command.split(/\s(?:<<<|<|>|2>)/);
      const words = [...given.matchAll(/(?:"[^"]*"|'[^']*'|\\.|[^\s"'])+/g)];
      return problemsOfWords(words.map(([word]) => word.replaceAll(/^["']|["']$/g, '')));
    })
    .map((problem) => `${line.trim()}: ${problem}`);
}

function problemsOfWords(all: readonly string[]): string[] {
  const [program = '', ...args] = all.slice(
    Math.max(
      0,
      all.findIndex((word) => !/^\w+=/.test(word)),
    ),
  );
  if (program === '' || /^\w+=/.test(program)) return [];
  const name = program.replace(/^.*[/\\]|\.exe$/g, '');
  const words = OURS[name];
  if (words !== undefined) return ownProblems(words, args);
  if (program === 'npm') return npmProblems(args);
  const known = OTHERS.has(program) || existsSync(join(root, program)) || /^\.[/\\]/.test(program);
  return known ? pathProblems([program, ...args]) : [`${program} is no program that is known here`];
}

function ownProblems(words: readonly string[], args: readonly string[]): string[] {
  const [first = ''] = args;
  try {
    const short = first === '' || first.startsWith('-');
    const invocation = parse(short ? [...words, ...args] : args);
    return invocation.kind === 'usage-error' ? [invocation.error.message] : pathProblems(args);
  } catch (error) {
    return [String(error)];
  }
}

const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};

function npmProblems(args: readonly string[]): string[] {
  const [first = '', ...rest] = args;
  if (first === 'start') return ownProblems([], rest.slice(rest.indexOf('--') + 1));
  const script = first === 'run' ? rest[0] : first === 'test' ? 'test' : undefined;
  if (script === undefined) return /^(?:ci|install)$/.test(first) ? [] : [`npm ${first}`];
  return script in scripts ? pathProblems(rest) : [`there is no npm script ${script}`];
}

/** What looks like a path of the checkout, or one of our units, and is not there. */
function pathProblems(args: readonly string[]): string[] {
  return args.flatMap((arg) => {
    if (FOLDERS.test(arg)) return existsSync(join(root, arg)) ? [] : [`there is no ${arg}`];
    const unit = /^(\S+@)\w+(?:\.service)?$/.exec(arg)?.[1];
    const missing = unit !== undefined && !existsSync(join(root, `deploy/systemd/${unit}.service`));
    return missing ? [`there is no unit ${unit}`] : [];
  });
}
