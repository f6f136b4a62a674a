import { choice, duration, list, size, text } from '../flags/kinds.ts';
import { flag, type FlagKind, type FlagValues } from '../flags/table.ts';
import type { StartMode } from '../../service/spec.ts';

export const VERBS = ['install', 'uninstall', 'start', 'stop', 'status'] as const;
export type Verb = (typeof VERBS)[number];

const SERVICE = 'Service';

/** `NAME=value`; the flag may be repeated, and a comma is a part of the value. */
function settings(): FlagKind<readonly string[]> {
  return {
    placeholder: 'NAME=value',
    schema: { type: 'array', items: { type: 'string' } },
    parse(given) {
      if (/^[^=\s]+=/.test(given)) return [given];
      throw new Error('expected a variable and its value, such as NAME=value');
    },
    format: (value) => value.join(' '),
    merge: (former, latter) => [...former, ...latter],
  };
}

function name(): FlagKind<string> {
  return {
    ...text('name'),
    parse(given) {
      if (/^[\w.-]{1,80}$/.test(given)) return given;
      throw new Error('expected up to 80 letters, digits and any of _ . -');
    },
  };
}

/** Flags of the command `service`. */
export const SERVICE_FLAGS = {
  name: flag<string>({
    kind: name(),
    default: 'kpng-userspace',
    help: 'Name of the service, and of its log file.',
    group: SERVICE,
  }),
  'display-name': flag<string>({
    kind: text('text'),
    default: '',
    help: 'What lists of services call it. Empty: its name.',
    group: SERVICE,
  }),
  'depends-on': flag<readonly string[]>({
    kind: list('names'),
    default: [],
    help: 'Services that have to run before, such as that of the controller.',
    group: SERVICE,
  }),
  start: flag<StartMode>({
    kind: choice(['delayed-auto', 'auto', 'demand']),
    default: 'delayed-auto',
    help: 'When Windows starts it: a while after the boot, at the boot, or when it is told to.',
    group: SERVICE,
  }),
  env: flag<readonly string[]>({
    kind: settings(),
    default: [],
    help: 'A variable of its environment; may be repeated.',
    group: SERVICE,
  }),
  'log-dir': flag<string>({
    kind: text('path'),
    default: '',
    help: 'Folder of the log file, which is made. Empty: kpng-userspace\\logs in %ProgramData%.',
    group: SERVICE,
  }),
  'log-size': flag<number>({
    kind: size(65_536),
    default: 10 * 1024 * 1024,
    help: 'Size at which the log file is put aside and a new one begun.',
    group: SERVICE,
  }),
  'restart-delay': flag<number>({
    kind: duration(),
    default: 2000,
    help: 'Wait before it is started again when it has ended by itself.',
    group: SERVICE,
  }),
  'stop-timeout': flag<number>({
    kind: duration(1),
    default: 15_000,
    help: 'How long it may take to stop; more than its --drain-timeout. Then it is killed.',
    group: SERVICE,
  }),
  nssm: flag<string>({
    kind: text('path'),
    default: '',
    help: 'nssm.exe, 2.24 or later. Empty: beside this program, else on the PATH.',
    group: SERVICE,
  }),
  winsw: flag<string>({
    kind: text('folder'),
    default: '',
    help: 'Instead of using NSSM, write a definition for WinSW into this folder. For install only.',
    group: SERVICE,
  }),
} as const;

export type ServiceValues = FlagValues<typeof SERVICE_FLAGS>;
