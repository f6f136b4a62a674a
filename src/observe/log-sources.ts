import * as config from '../config/events.ts';
import type { ErrorCode } from '../errors.ts';
import * as file from '../file/events.ts';
import type { Problems } from '../file/problem.ts';
import * as kube from '../kube/events.ts';
import * as server from '../server/events.ts';
import * as store from '../store/events.ts';
import { httpLimitReached } from '../util/http-limits.ts';
import { certificateOutdated } from '../util/tls-follow.ts';
import { logRule, type LogRule } from './log-rules.ts';
import type { LogKeys } from './log.ts';

/** Reasons of one outage that are remembered. */
const MAX_REASONS = 16;

/**
 * One line for each reason of an outage: retries repeat it, and so do the watches of several resources. From -v=2 on, every
 * failed attempt is logged.
 */
const OUTAGES: LogRule = {
  v: 0,
  subscribe(subscriptions, log, limiter) {
    const reasons = new Set<string>();
    const isNews = ({ source, error }: store.SourceDisconnected): boolean => {
      const reason = `${source} ${error.message.replace(/^(?:list|watch) \S+ at /, '')}`;
      if (reasons.has(reason) && log.verbosity < 2) return false;
      if (reasons.size === MAX_REASONS) reasons.clear();
      reasons.add(reason);
      return true;
    };
    subscriptions.on(store.sourceConnected, () => reasons.clear());
    logRule(
      'warn limited',
      store.sourceDisconnected,
      (event) => {
        if (!isNews(event)) return undefined;
        return LOST[event.error.code] ?? 'Source unreachable; serving last known state';
      },
      'source error retryInMs',
    ).subscribe(subscriptions, log, limiter);
  },
};

/** Log lines of sources and of the servers of this process. The Kubernetes source also causes those of all sources. */
export const SOURCE_RULES: readonly LogRule[] = [
  logRule('info limited', store.sourceConnected, 'Connected to the source', 'source'),
  OUTAGES,
  logRule('info 2', store.sourceSynced, 'Received a complete state', 'source services changed'),
  logRule(
    'error limited',
    store.opInvalid,
    'Skipped an invalid item from the source',
    'source error',
  ),
  logRule(
    'error limited',
    store.sinkFailed,
    'Applying a change failed; retrying',
    'error waiting retryInMs',
  ),
  logRule('info limited', store.sinkRecovered, 'Changes are applied again', 'failures'),
  logRule(
    'info',
    config.configReloaded,
    'Configuration reloaded',
    ({ path, changed, refused }) => ({
      path,
      changed: changed.length,
      refused: refused.length,
    }),
  ),
  logRule('info', config.configReloaded, 'Setting changed', ({ changed }) =>
    changed.map(settingKeys),
  ),
  logRule(
    'warn',
    config.configReloaded,
    'Setting changed; takes effect after a restart',
    ({ refused }) =>
      refused.map((change) => ({ ...settingKeys(change), code: 'KPNG_CONFIG_NOT_LIVE' })),
  ),
  logRule(
    'error',
    config.configFailed,
    'Configuration invalid; keeping the previous settings',
    'path error',
  ),
  logRule(
    'info limited',
    file.fileLoaded,
    'Loaded the state file',
    'path services nodes bytes durationMs',
  ),
  logRule(
    'warn',
    file.fileLoaded,
    'A part of the state file has no effect', // Only new ones: the file may be written every minute.
    ({ path, newWarnings }) => problemLines(path, newWarnings, undefined),
  ),
  logRule(
    'error',
    file.fileInvalid,
    ({ served }) =>
      served
        ? 'State file invalid; serving the last good state'
        : 'State file invalid; nothing is served yet',
    ({ path, error, errors }) => problemLines(path, errors, error.code),
  ),
  logRule('error', file.fileReadFailed, 'Reading the state file failed; retrying', 'path error'),
  logRule('info', file.fileRecovered, 'The state file can be read again', 'path'),
  logRule(
    'info',
    kube.kubeStarted,
    'Connected to the Kubernetes API',
    'server origin context user by proxy selector',
  ),
  logRule(
    'info 2',
    kube.kubeListed,
    ({ why }) => (why === 'start' ? 'Listed' : 'Listed again'),
    ({ resource, objects, pages, durationMs, why }) => ({
      resource,
      objects,
      pages,
      ms: Math.round(durationMs),
      because: why === 'start' ? undefined : why,
    }),
  ),
  logRule(
    'info 2',
    kube.kubeFailed,
    ({ routine }) => (routine ? 'Watch ended; watching again' : undefined),
    ({ resource, kind, error, retryInMs }) => ({
      resource,
      because: kind,
      err: error.message,
      retryInMs: Math.round(retryInMs),
    }),
  ),
  logRule(
    'info 2',
    kube.kubeWatching,
    ({ recovered }) => (recovered ? 'Watching again' : 'Watching'),
    'resource',
  ),
  logRule(
    'info',
    kube.kubeNode,
    ({ ineligible }) =>
      ineligible === undefined
        ? 'Node is eligible for load balancers again'
        : 'Node is about to be removed; /healthz answers 503',
    'node ineligible:because',
  ),
  logRule(
    'info 1',
    kube.kubeOrphans,
    ({ example }) =>
      example === undefined
        ? 'Every EndpointSlice has its Service now'
        : 'EndpointSlices without a Service for this proxy; waiting for their Services',
    ({ count, example }) => (example === undefined ? {} : { count, ...example }),
  ),
  logRule('info', server.serverListening, 'Serving the API', 'address security'),
  logRule(
    'warn',
    server.serverListening,
    ({ exposed, security }) =>
      exposed && security === 'plaintext'
        ? 'API served in plaintext: any client that can connect can read the state of the cluster'
        : undefined,
    'address',
  ),
  logRule('info 1 limited', server.watchStarted, 'Client started to watch', 'api peer watchers'),
  logRule(
    'info 1 limited',
    server.watchEnded,
    'Client stopped watching',
    'api peer nodeName syncs watchers error',
  ),
  logRule('warn limited', server.handshakeFailed, 'TLS handshake failed', 'peer error'),
  logRule(
    'warn limited',
    server.serverLimitReached,
    'Client refused: limit reached',
    'limit value peer',
  ),
  logRule(
    'info',
    server.tlsFilesChanged,
    ({ error }) =>
      error === undefined ? 'TLS files changed; used for new connections' : undefined,
    ({ validUntil }) =>
      validUntil === undefined ? {} : { validUntil: new Date(validUntil).toISOString() },
  ),
  logRule(
    'warn',
    server.tlsFilesChanged,
    ({ error }) => error && 'TLS files changed but are invalid; keeping the previous ones',
    'error',
  ),
  logRule(
    'warn',
    certificateOutdated,
    'TLS certificate not valid at this time; clients refuse it',
    'error',
  ),
  logRule(
    'warn limited',
    httpLimitReached,
    'HTTP connection closed: limit reached',
    'limit remoteAddress',
  ),
];

const LOST: Partial<Record<ErrorCode, string>> = {
  KPNG_KUBE_UNAUTHORIZED:
    'Kubernetes API refused the credentials (unauthorized); serving last known state',
  KPNG_KUBE_FORBIDDEN: 'Kubernetes API refused a request (forbidden); serving last known state',
};

function settingKeys({ flag, field, from, to }: config.SettingChange): LogKeys {
  return { field, ...(flag !== '' && { flag: `--${flag}` }), from, to };
}

function problemLines(
  path: string,
  { first, total }: Problems,
  code: string | undefined,
): LogKeys[] {
  const common = code === undefined ? {} : { code };
  const lines: LogKeys[] = first.map((problem) => {
    const { line, column } = problem;
    return { path, line, column, at: problem.path, err: problem.message, ...common };
  });
  if (total > first.length) {
    lines.push({ path, err: `and ${total - first.length} more`, ...common });
  }
  return lines;
}
