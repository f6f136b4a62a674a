/**
 * WinSW, as far as it reads definitions: which elements there are, what each may be, and what becomes of it. It finds an
 * element by its name wherever it is in the file and ignores what it does not know; here that is an error.
 */
import { parseXml, type XmlElement } from './xml.ts';

/** What WinSW makes of a definition. Times in milliseconds, sizes in bytes. */
export interface WinswService {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly executable: string;
  /** The command line behind the executable, as it is handed to Windows. */
  readonly arguments: string;
  readonly workingDirectory: string;
  readonly startMode: string;
  readonly delayed: boolean;
  readonly dependencies: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly log: {
    readonly directory: string;
    readonly mode: string;
    readonly bytes: number;
    readonly files: number;
  };
  readonly failures: readonly { readonly action: string; readonly delayMs: number }[];
  readonly resetFailureMs: number;
  readonly stopTimeoutMs: number;
}

type Shape = { readonly many?: true; readonly attributes?: readonly string[] };

/** The elements that are taken note of, in both versions, and how often they may be there. */
const ELEMENTS: Readonly<Record<string, Shape>> = {
  id: {},
  name: {},
  description: {},
  executable: {},
  arguments: {},
  workingdirectory: {},
  startmode: {},
  delayedAutoStart: {},
  depend: { many: true },
  env: { many: true, attributes: ['name', 'value'] },
  logpath: {},
  log: { attributes: ['mode'] },
  onfailure: { many: true, attributes: ['action', 'delay'] },
  resetfailure: {},
  stoptimeout: {},
};
const IN_LOG = new Set(['sizeThreshold', 'keepFiles']);
const START_MODES = ['Boot', 'System', 'Automatic', 'Manual', 'Disabled'];
const ACTIONS = ['restart', 'reboot', 'none'];
const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  ms: 1,
  sec: 1000,
  secs: 1000,
  min: 60_000,
  mins: 60_000,
  hr: 3_600_000,
  hrs: 3_600_000,
  hour: 3_600_000,
  hours: 3_600_000,
  day: 86_400_000,
  days: 86_400_000,
};
const MAX_INT = 2 ** 31 - 1;

/** Throws where WinSW would, and where it would take no notice. */
export function readWinsw(document: string): WinswService {
  const root = parseXml(document);
  if (root.name !== 'service') throw new Error(`the root is ${root.name}`);
  for (const element of root.children) checkElement(element, root);
  const all = (name: string) => root.children.filter((child) => child.name === name);
  const text = (name: string): string => {
    const found = all(name)[0];
    if (found === undefined) throw new Error(`<${name}> is missing`);
    return found.text;
  };
  const [log] = all('log');
  if (log === undefined) throw new Error('<log> is missing');
  const inLog = (name: string): number =>
    whole(log.children.find((child) => child.name === name)?.text ?? '');
  const bytes = inLog('sizeThreshold') * 1024;
  if (bytes > MAX_INT) throw new Error(`sizeThreshold: ${bytes} bytes are too many`);
  return {
    id: text('id'),
    name: text('name'),
    description: text('description'),
    executable: text('executable'),
    arguments: text('arguments'),
    workingDirectory: text('workingdirectory'),
    startMode: oneOf(START_MODES, text('startmode')),
    delayed: all('delayedAutoStart').length > 0,
    dependencies: all('depend').map((each) => each.text),
    environment: Object.fromEntries(
      all('env').map((each) => [attribute(each, 'name'), attribute(each, 'value')]),
    ),
    log: {
      directory: text('logpath'),
      mode: attribute(log, 'mode'),
      bytes,
      files: inLog('keepFiles'),
    },
    failures: all('onfailure').map((each) => ({
      action: oneOf(ACTIONS, attribute(each, 'action')),
      delayMs: span(attribute(each, 'delay')),
    })),
    resetFailureMs: span(text('resetfailure')),
    stopTimeoutMs: span(text('stoptimeout')),
  };
}

function checkElement(element: XmlElement, root: XmlElement): void {
  const { name, attributes, children } = element;
  const shape = ELEMENTS[name];
  if (shape === undefined) throw new Error(`WinSW knows no <${name}>`);
  const count = root.children.filter((child) => child.name === name).length;
  if (count > 1 && shape.many !== true) throw new Error(`<${name}> is there ${count} times`);
  for (const given of attributes.keys()) {
    if (!shape.attributes?.includes(given)) throw new Error(`<${name}> has no ${given}`);
  }
  for (const child of children) {
    if (name !== 'log' || !IN_LOG.has(child.name) || child.attributes.size > 0)
      throw new Error(`<${name}> has no <${child.name}>`);
  }
  // Version 3 reads it as a truth value, version 2 looks whether it is there.
  if (name === 'delayedAutoStart' && element.text !== 'true') throw new Error('not true');
}

function attribute(element: XmlElement, name: string): string {
  const value = element.attributes.get(name);
  if (value === undefined) throw new Error(`<${element.name}> has no ${name}`);
  return value;
}

function oneOf(words: readonly string[], text: string): string {
  if (words.includes(text)) return text;
  throw new Error(`${text} is none of ${words.join(', ')}`);
}

/** A whole number of 32 bits. */
function whole(text: string): number {
  const value = /^\d+$/.test(text.trim()) ? Number(text) : Number.NaN;
  if (value <= MAX_INT) return value;
  throw new Error(`${JSON.stringify(text)} is no number of 32 bits`);
}

/** A number with a unit behind it; without one, milliseconds. */
function span(text: string): number {
  const [, digits = '', unit = '?'] = /^\s*(\d+)\s*([a-z]*)\s*$/.exec(text) ?? [];
  const factor = UNITS[unit];
  if (factor === undefined) throw new Error(`${JSON.stringify(text)} is no time`);
  return whole(digits) * factor;
}
