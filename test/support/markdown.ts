import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from '../../src/cli/parse.ts';
import { messageOf } from '../../src/errors.ts';
import { argumentsFor, NAMES } from '../../tools/sea/names.ts';

/**
 * The rows of the tables in a page, cell by cell, without their heads. With `section`, only those
 * under the heading of that name.
 */
export function tableRows(page: string, section?: string): string[][] {
  const rows: string[][] = [];
  let inSection = section === undefined;
  let inTable = false;
  for (const line of page.split('\n')) {
    if (line.startsWith('#')) {
      inSection = section === undefined || line.replace(/^#+ /, '') === section;
    }
    if (!line.startsWith('|')) inTable = false;
    else if (/^\|( --- \|)+$/.test(line)) inTable = true;
    else if (inTable && inSection) rows.push(cells(line));
  }
  return rows;
}

function cells(line: string): string[] {
  return line
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

/** The items of a page's lists that begin with names in backquotes: the names, and what follows them. */
export function listItems(page: string, section?: string): { names: string[]; text: string }[] {
  const start = section === undefined ? page : (page.split(`\n## ${section}\n`)[1] ?? '');
  const part = section === undefined ? page : (start.split('\n## ')[0] ?? '');
  return [...part.matchAll(/^\* ((?:`[^`]+`(?:, )?)+)(.*(?:\n {2}.*)*)/gm)].map(
    ([, names = '', text = '']) => ({ names: codes(names), text: text.replace(/^: /, '') }),
  );
}

/**
 * The metrics of `docs/reference/metrics.md`, or of one section of it. `labels`: those that not all metrics of the
 * section have. `values`: what follows the labels.
 */
export function documentedMetrics(page: string, section?: string) {
  return listItems(page, section).flatMap(({ names, text }) => {
    const [, mark] = /^(?:\\\*)? \((\w+)\): /.exec(text) ?? [];
    const [, labels = '', values] = /\bBy ((?:`\w+`(?:, )?)+)(?:: (.*))?\.$/.exec(text) ?? [];
    return names.map((name) => {
      const type = mark ?? (name.endsWith('_total') ? 'counter' : 'gauge');
      return { name, type, labels: codes(labels), values };
    });
  });
}

function codes(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);
}

/** The blocks of a page that people copy from: code between fences, and what is indented like code. */

export interface Block {
  /** What stands behind the fence: `console`, `sh`, `yaml` and so on. `indented` where there is no fence. */
  readonly language: string;
  /** The comment in the line before: `<!-- MARK -->`. */
  readonly mark: string;
  readonly text: string;
  /** Number of its first line, the fence, from 1. */
  readonly line: number;
}

export function blocksOf(page: string): Block[] {
  const blocks: Block[] = [];
  const lines = page.split('\n');
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    const [, indent, language = ''] = /^( *)```(\S*)/.exec(line) ?? [];
    if (indent === undefined) {
      const startsBlock = /^ {4}\S/.test(line) && lines[at - 1] === '';
      if (startsBlock) {
        blocks.push({ language: 'indented', mark: '', text: `${line.trim()}\n`, line: at + 1 });
      }
      continue;
    }
    const end = lines.indexOf(`${indent}\`\`\``, at + 1);
    if (end < 0) throw new Error(`line ${at + 1}: the fence is not closed`);
    const inside = lines.slice(at + 1, end).map((each) => `${each.slice(indent.length)}\n`);
    const mark = /^ *<!-- (.*) -->$/.exec(lines[at - 1] ?? '')?.[1] ?? '';
    blocks.push({ language, mark, text: inside.join(''), line: at + 1 });
    at = end;
  }
  return blocks;
}

/** A page without its blocks. */
export function proseOf(page: string): string {
  return page.replaceAll(/^( *)```[^]*?^ *```$/gm, '');
}

/** Whether a command line that a page shows could be typed: what of it is ours is really there. */

const root = join(import.meta.dirname, '..', '..');

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
  if (Object.hasOwn(NAMES, name)) return ownProblems(argumentsFor(name, args));
  if (program === 'npm') return npmProblems(args);
  const known = OTHERS.has(program) || existsSync(join(root, program)) || /^\.[/\\]/.test(program);
  return known ? pathProblems([program, ...args]) : [`${program} is no program that is known here`];
}

function ownProblems(args: readonly string[]): string[] {
  try {
    parse(args);
    return pathProblems(args);
  } catch (error) {
    return [messageOf(error)];
  }
}

const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};

function npmProblems(args: readonly string[]): string[] {
  const [first = '', ...rest] = args;
  if (first === 'start') return ownProblems(rest.slice(rest.indexOf('--') + 1));
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
