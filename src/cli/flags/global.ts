import { defaultSocketPath } from '../../admin/socket-path.ts';
import { DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import type { HostPort } from '../../util/host-port.ts';
import { choice, duration, integer, listenAddress, optional, text } from './kinds.ts';
import { OBSERVE_FLAGS } from './observe.ts';
import { flag, group, type FlagValues } from './table.ts';

const HEALTH = 'Health and metrics';
const LOG = 'Log';
const PROCESS = 'Process';

/** Flags of every command, allowed anywhere on the line. */
export const GLOBAL_FLAGS = {
  ...group(LOG, {
    v: flag(
      integer(0, 10),
      0,
      'How much to log, as in kube-proxy: 0 errors, warnings and the main steps, 1 services, ' +
        '2 listeners, 3 every connection, 4 what happens to it.',
      { short: 'v', live: true },
    ),
    'logging-format': flag<'text' | 'json' | undefined>(
      choice(['text', 'json']),
      undefined,
      'Form of the log lines, which go to standard error.',
      { defaultText: 'text on a terminal, else json' },
    ),
  }),
  ...group(HEALTH, {
    'metrics-bind-address': flag<HostPort | undefined>(
      listenAddress(),
      { host: '127.0.0.1', port: 10_249 },
      'Where /metrics, /proxyMode and /configz are served. An empty value or 0 switches them off.',
      { aliases: ['exportMetrics'] },
    ),
    'healthz-bind-address': flag<HostPort | undefined>(
      listenAddress(),
      { host: '0.0.0.0', port: 10_256 },
      'Where /healthz, /livez and /readyz are served. An empty value or 0 switches them off.',
    ),
  }),
  ...OBSERVE_FLAGS,
  ...group(PROCESS, {
    config: flag(
      text('path'),
      '',
      'Configuration file: KubeProxyConfiguration, UserspaceProxyConfiguration, or both. Flags and ' +
        'environment variables count more than the file, which is read again when it changes and at HUP.',
    ),
    'oom-score-adj': flag<number | undefined>(
      optional(integer(-1000, 1000)),
      undefined,
      'How readily Linux ends this process when memory runs out, from -1000 (never) to 1000. ' +
        'Lowering it needs the capability SYS_RESOURCE. Empty: as it is.',
    ),
  }),
  ...group(HEALTH, {
    'admin-socket': flag(
      text('path'),
      defaultSocketPath(),
      'Socket, for its owner only, on which the commands for a running proxy reach it. Empty: none.',
      {
        defaultText:
          '/run/kpng-userspace/admin.sock for root, else in $XDG_RUNTIME_DIR; on Windows a named pipe',
      },
    ),
    'status-bind-address': flag<HostPort | undefined>(
      listenAddress(),
      undefined,
      'Where the status page is served, read-only: :8090 is on loopback only, another address for ' +
        'whoever reaches it. Empty or 0: nowhere.',
    ),
  }),
  ...group(PROCESS, {
    'error-delay': flag(
      duration(1),
      1000,
      'First wait before a lost source is tried again; the waits grow from there.',
    ),
    'drain-delay': flag(
      duration(),
      0,
      'How long new connections are still served after the first INT or TERM, with /readyz and ' +
        '/healthz failing already, so that load balancers can go elsewhere first.',
      { live: true },
    ),
    'drain-timeout': flag(
      duration(),
      5000,
      'How long connections may run on after that before they are cut.',
      { live: true },
    ),
  }),
};

export type GlobalOptions = FlagValues<typeof GLOBAL_FLAGS>;

/** The waits that `--error-delay` asks for. */
export function backoffFrom(globals: GlobalOptions): BackoffPolicy {
  const initialMs = globals['error-delay'];
  return { ...DEFAULT_BACKOFF, initialMs, maxMs: Math.max(DEFAULT_BACKOFF.maxMs, initialMs) };
}
