import { checkedText, choice, duration, list, size, text, texts } from '../flags/kinds.ts';
import { flag, group, type FlagValues } from '../flags/table.ts';

export const VERBS = ['install', 'uninstall', 'start', 'stop', 'status'] as const;
export type Verb = (typeof VERBS)[number];

const name = checkedText('name', (given) => {
  if (/^[\w.-]{1,80}$/.test(given)) return;
  throw new Error('expected up to 80 letters, digits and any of _ . -');
});

/** The flag may be repeated, and a comma is part of the value. */
const settings = texts('NAME=value', (given) => {
  if (/^[^=\s]+=/.test(given)) return [given];
  throw new Error('expected a variable and its value, such as NAME=value');
});

export const SERVICE_FLAGS = group('Service', {
  name: flag(name, 'kpng-userspace', { help: 'Name of the service, and of its log file.' }),
  'display-name': flag(text('text'), '', {
    help: 'Name in lists of services. Empty: the name of the service.',
  }),
  'depends-on': flag<readonly string[]>(list('names'), [], {
    help: 'Services that must be running first, such as the controller.',
  }),
  start: flag(choice(['delayed-auto', 'auto', 'demand']), 'delayed-auto', {
    help: 'When Windows starts it: some time after boot, at boot, or on demand.',
  }),
  env: flag<readonly string[]>(settings, [], {
    help: 'Environment variable of the service; may be repeated.',
  }),
  'log-dir': flag(text('path'), '', {
    help: 'Folder of the log file; created if missing. Empty: kpng-userspace\\logs in %ProgramData%.',
  }),
  'log-size': flag(size(65_536), 10 * 1024 * 1024, {
    help: 'Size at which the log file is rotated.',
  }),
  'restart-delay': flag(duration(), 2000, {
    help: 'Delay before a service that exited is restarted.',
  }),
  'stop-timeout': flag(duration(1), 15_000, {
    help: 'How long stopping may take before the process is killed; longer than its --drain-timeout.',
  }),
  nssm: flag(text('path'), '', {
    help: 'nssm.exe, 2.24 or later. Empty: beside this program, else on the PATH.',
  }),
  winsw: flag(text('folder'), '', {
    help: 'Write a definition for WinSW into this folder instead of using NSSM; for install only.',
  }),
});

export type ServiceValues = FlagValues<typeof SERVICE_FLAGS>;
