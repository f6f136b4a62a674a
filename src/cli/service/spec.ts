import { choice, duration, list, size, text, textLike } from '../flags/kinds.ts';
import { flag, type FlagValues, group } from '../flags/table.ts';

export const VERBS = ['install', 'uninstall', 'start', 'stop', 'status'] as const;
export type Verb = (typeof VERBS)[number];

const NAME = 'up to 80 letters, digits and any of _ . -';
const name = textLike('name', NAME, /^[\w.-]{1,80}$/);

const VARIABLE = 'a variable and its value, such as NAME=value';
const variable = textLike('NAME=value', VARIABLE, /^[^=\s]+=/);
/** The flag may be repeated, and a comma is part of the value. */
const variables = list(variable.placeholder, variable.parse, (given) => [given]);

export const SERVICE_FLAGS = group('Service', {
  name: flag(name, 'kpng-userspace')`Name of the service, and of its log file.`,
  'display-name': flag(text('text'), '')`
    Name in lists of services. Empty: the name of the service.`,
  'depends-on': flag(list('names'), [])`
    Services that must be running first, such as the controller.`,
  start: flag(choice(['delayed-auto', 'auto', 'demand']), 'delayed-auto')`
    When Windows starts it: some time after boot, at boot, or on demand.`,
  env: flag(variables, [])`Environment variable of the service; may be repeated.`,
  'log-dir': flag(text('path'), '')`
    Folder of the log file; created if missing. Empty: kpng-userspace\\logs in %ProgramData%.`,
  'log-size': flag(size(65_536), 10 * 1024 * 1024)`Size at which the log file is rotated.`,
  'restart-delay': flag(duration(), 2000)`Delay before a service that exited is restarted.`,
  'stop-timeout': flag(duration(1), 15_000)`
    How long stopping may take before the process is killed; longer than its --drain-timeout.`,
  nssm: flag(text('path'), '')`
    nssm.exe, 2.24 or later. Empty: beside this program, else on the PATH.`,
  winsw: flag(text('folder'), '')`
    Write a definition for WinSW into this folder instead of using NSSM; for install only.`,
});

export type ServiceValues = FlagValues<typeof SERVICE_FLAGS>;
