import { defaultSocketPath } from '../../admin/socket-path.ts';
import { DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import type { HostPort } from '../../util/host-port.ts';
import { choice, duration, integer, listenAddress, optional, text } from './kinds.ts';
import { OBSERVE_FLAGS } from './observe.ts';
import { flag, type FlagValues } from './table.ts';

const HEALTH = 'Health and metrics';
const LOG = 'Log';
const PROCESS = 'Process';

/** Flags of every command, allowed anywhere on the line. */
export const GLOBAL_FLAGS = {
  v: flag<number>({
    kind: integer(0, 10),
    default: 0,
    help:
      'How much to log, as in kube-proxy: 0 errors, warnings and the main steps, 1 services, ' +
      '2 listeners, 3 every connection, 4 what happens to it.',
    group: LOG,
    short: 'v',
    live: true,
  }),
  'logging-format': flag<'text' | 'json' | undefined>({
    kind: choice(['text', 'json']),
    default: undefined,
    help: 'Form of the log lines, which go to standard error.',
    group: LOG,
    defaultText: 'text on a terminal, else json',
  }),
  'metrics-bind-address': flag<HostPort | undefined>({
    kind: listenAddress(),
    default: { host: '127.0.0.1', port: 10_249 },
    help: 'Where /metrics, /proxyMode and /configz are served. An empty value or 0 switches them off.',
    group: HEALTH,
    aliases: ['exportMetrics'],
  }),
  'healthz-bind-address': flag<HostPort | undefined>({
    kind: listenAddress(),
    default: { host: '0.0.0.0', port: 10_256 },
    help: 'Where /healthz, /livez and /readyz are served. An empty value or 0 switches them off.',
    group: HEALTH,
  }),
  ...OBSERVE_FLAGS,
  config: flag<string>({
    kind: text('path'),
    default: '',
    help:
      'Configuration file: KubeProxyConfiguration, UserspaceProxyConfiguration, or both. Flags and ' +
      'environment variables count more than the file, which is read again when it changes and at HUP.',
    group: PROCESS,
  }),
  'oom-score-adj': flag<number | undefined>({
    kind: optional(integer(-1000, 1000)),
    default: undefined,
    help:
      'How readily Linux ends this process when memory runs out, from -1000 (never) to 1000. ' +
      'Lowering it needs the capability SYS_RESOURCE. Empty: as it is.',
    group: PROCESS,
  }),
  'admin-socket': flag<string>({
    kind: text('path'),
    default: defaultSocketPath(),
    defaultText:
      '/run/kpng-userspace/admin.sock for root, else in $XDG_RUNTIME_DIR; on Windows a named pipe',
    help: 'Socket, for its owner only, on which the commands for a running proxy reach it. Empty: none.',
    group: HEALTH,
  }),
  'status-bind-address': flag<HostPort | undefined>({
    kind: listenAddress(),
    default: undefined,
    help:
      'Where the status page is served, read-only: :8090 is on loopback only, another address for ' +
      'whoever reaches it. Empty or 0: nowhere.',
    group: HEALTH,
  }),
  'error-delay': flag<number>({
    kind: duration(1),
    default: 1000,
    help: 'First wait before a lost source is tried again; the waits grow from there.',
    group: PROCESS,
  }),
  'drain-delay': flag<number>({
    kind: duration(),
    default: 0,
    help:
      'How long new connections are still served after the first INT or TERM, with /readyz and ' +
      '/healthz failing already, so that load balancers can go elsewhere first.',
    group: PROCESS,
    live: true,
  }),
  'drain-timeout': flag<number>({
    kind: duration(),
    default: 5000,
    help: 'How long connections may run on after that before they are cut.',
    group: PROCESS,
    live: true,
  }),
} as const;

export type GlobalOptions = FlagValues<typeof GLOBAL_FLAGS>;

/** The waits that `--error-delay` asks for. */
export function backoffFrom(globals: GlobalOptions): BackoffPolicy {
  const initialMs = globals['error-delay'];
  return { ...DEFAULT_BACKOFF, initialMs, maxMs: Math.max(DEFAULT_BACKOFF.maxMs, initialMs) };
}
