import * as config from '../config/events.ts';
import type { ErrorCode } from '../errors.ts';
import * as file from '../file/events.ts';
import type { Problems } from '../file/problem.ts';
import * as kube from '../kube/events.ts';
import * as server from '../server/events.ts';
import * as store from '../store/events.ts';
import { httpLimitReached } from '../util/http-connections.ts';
import { certificateOutdated } from '../util/tls-files.ts';
import { on, type LogRule } from './log-rules.ts';
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
    on(
      store.sourceDisconnected,
      (event) =>
        isNews(event)
          ? `warn limited: ${LOST[event.error.code] ?? 'Source unreachable; serving last known state'}`
          : undefined,
      'source error retryInMs',
    ).subscribe(subscriptions, log, limiter);
  },
};

/** Log lines of sources and of the servers of this process. The Kubernetes source also causes those of all sources. */
export const SOURCE_RULES: readonly LogRule[] = [
  on(store.sourceConnected, 'info limited: Connected to the source', 'source'),
  OUTAGES,
  on(store.sourceSynced, 'info 2: Received a complete state', 'source services changed'),
  on(store.opInvalid, 'error limited: Skipped an invalid item from the source', 'source error'),
  on(
    store.sinkFailed,
    'error limited: Applying a change failed; retrying',
    'error waiting retryInMs',
  ),
  on(store.sinkRecovered, 'info limited: Changes are applied again', 'failures'),
  on(config.configReloaded, 'info: Configuration reloaded', ({ path, changed, refused }) => ({
    path,
    changed: changed.length,
    refused: refused.length,
  })),
  on(config.configReloaded, 'info: Setting changed', ({ changed }) => changed.map(settingKeys)),
  on(config.configReloaded, 'warn: Setting changed; takes effect after a restart', ({ refused }) =>
    refused.map((change) => ({ ...settingKeys(change), code: 'KPNG_CONFIG_NOT_LIVE' })),
  ),
  on(
    config.configFailed,
    'error: Configuration invalid; keeping the previous settings',
    'path error',
  ),
  on(
    file.fileLoaded,
    'info limited: Loaded the state file',
    'path services nodes bytes durationMs',
  ),
  on(
    file.fileLoaded,
    'warn: A part of the state file has no effect', // Only new ones: the file may be written every minute.
    ({ path, newWarnings }) => problemLines(path, newWarnings, undefined),
  ),
  on(
    file.fileInvalid,
    ({ served }) =>
      served
        ? 'error: State file invalid; serving the last good state'
        : 'error: State file invalid; nothing is served yet',
    ({ path, error, errors }) => problemLines(path, errors, error.code),
  ),
  on(file.fileReadFailed, 'error: Reading the state file failed; retrying', 'path error'),
  on(file.fileRecovered, 'info: The state file can be read again', 'path'),
  on(
    kube.kubeStarted,
    'info: Connected to the Kubernetes API',
    'server origin context user by proxy selector',
  ),
  on(
    kube.kubeListed,
    ({ why }) => (why === 'start' ? 'info 2: Listed' : 'info 2: Listed again'),
    ({ resource, objects, pages, durationMs, why }) => ({
      resource,
      objects,
      pages,
      ms: Math.round(durationMs),
      because: why === 'start' ? undefined : why,
    }),
    2,
  ),
  on(
    kube.kubeFailed,
    ({ routine }) => (routine ? 'info 2: Watch ended; watching again' : undefined),
    ({ resource, kind, error, retryInMs }) => ({
      resource,
      because: kind,
      err: error.message,
      retryInMs: Math.round(retryInMs),
    }),
    2,
  ),
  on(
    kube.kubeWatching,
    ({ recovered }) => (recovered ? 'info 2: Watching again' : 'info 2: Watching'),
    'resource',
    2,
  ),
  on(
    kube.kubeNode,
    ({ ineligible }) =>
      ineligible === undefined
        ? 'info: Node is eligible for load balancers again'
        : 'info: Node is about to be removed; /healthz answers 503',
    'node ineligible:because',
  ),
  on(
    kube.kubeOrphans,
    ({ example }) =>
      example === undefined
        ? 'info 1: Every EndpointSlice has its Service now'
        : 'info 1: EndpointSlices without a Service for this proxy; waiting for their Services',
    ({ count, example }) => (example === undefined ? {} : { count, ...example }),
    1,
  ),
  on(server.serverListening, 'info: Serving the API', 'address security'),
  on(
    server.serverListening,
    ({ exposed, security }) =>
      exposed && security === 'plaintext'
        ? 'warn: API served in plaintext: any client that can connect can read the state of the cluster'
        : undefined,
    'address',
  ),
  on(server.watchStarted, 'info 1 limited: Client started to watch', 'api peer watchers'),
  on(
    server.watchEnded,
    'info 1 limited: Client stopped watching',
    'api peer nodeName syncs watchers error',
  ),
  on(server.handshakeFailed, 'warn limited: TLS handshake failed', 'peer error'),
  on(server.serverLimitReached, 'warn limited: Client refused: limit reached', 'limit value peer'),
  on(
    server.tlsFilesChanged,
    ({ error }) =>
      error === undefined
        ? 'info: TLS files changed; used for new connections'
        : 'warn: TLS files changed but are invalid; keeping the previous ones',
    ({ error: err, validUntil }) => ({
      ...(err !== undefined && { err }),
      ...(validUntil !== undefined && { validUntil: new Date(validUntil).toISOString() }),
    }),
  ),
  on(
    certificateOutdated,
    'warn: TLS certificate not valid at this time; clients refuse it',
    'error',
  ),
  on(
    httpLimitReached,
    'warn limited: HTTP connection closed: limit reached',
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
