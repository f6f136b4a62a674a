/** docs/reference/limits.md has every limit with its value, in the order of the source. */
import { readFileSync } from 'node:fs';
import { maxHeaderSize } from 'node:http';
import { join } from 'node:path';
import t from 'tap';
import { MAX_ENDPOINTS } from '../../src/admin/details.ts';
import { HISTORY_SAMPLES, SAMPLE_MS, MAX_HISTORIES } from '../../src/admin/sampler.ts';
import { MAX_ROWS } from '../../src/admin/services.ts';
import { MAX_FIELDS } from '../../src/api/wire.ts';
import { LIMIT_FLAGS } from '../../src/cli/flags/backend.ts';
import { defaultText, type FlagTable } from '../../src/cli/flags/table.ts';
import { toApi } from '../../src/cli/sinks/whole-state.ts';
import { toCallout } from '../../src/cli/sinks/backends.ts';
import { localSource } from '../../src/cli/sources.ts';
import { CONFIG_LIMITS } from '../../src/config/fields.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { DEFAULT_INTERVAL_MS } from '../../src/file/sink.ts';
import * as handover from '../../src/handover/wire.ts';
import { SILENT_MS } from '../../src/handover/predecessor.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { REVIEW_LIMITS } from '../../src/kube/reviews.ts';
import * as portal from '../../src/portal/bounds.ts';
import * as windows from '../../src/portal/windows/addresses.ts';
import * as ledger from '../../src/portal/windows/ledger.ts';
import { MAX_SINGLE_FAILURES } from '../../src/portal/windows/netsh.ts';
import { MAX_DRAINS } from '../../src/proxier/drains.ts';
import { LINGER_MS, MAX_LINGERING } from '../../src/proxier/engine-sync.ts';
import { MAX_INSPECTED, MAX_LISTED } from '../../src/proxysocket/inspect.ts';
import { LIMIT_NAMES } from '../../src/proxysocket/limits.ts';
import { HEADER_TIMEOUT_MS } from '../../src/proxysocket/tcp/connections.ts';
import { MAX_HEAD_BYTES } from '../../src/proxysocket/tcp/transport.ts';
import { MAX_HOPS } from '../../src/proxysocket/udp/acceptor.ts';
import * as api from '../../src/server/limits.ts';
import { STDERR_TAIL, TERM_GRACE_MS } from '../../src/sinks/callout.ts';
import { DEFAULT_STATE_LIMITS } from '../../src/store/change-set.ts';
import { DEFAULT_BACKOFF } from '../../src/util/backoff.ts';
import { formatBytes as size } from '../../src/util/bytes.ts';
import { formatDuration as time } from '../../src/util/duration.ts';
import * as http from '../../src/util/http-connections.ts';
import { TLS_POLL_MS } from '../../src/util/tls-files.ts';
import { tableRows } from '../support/markdown.ts';

const page = readFileSync(join(import.meta.dirname, '../../docs/reference/limits.md'), 'utf8');

const number = (value: number): string => value.toLocaleString('en');
const range = (...ms: readonly number[]): string => ms.map(time).join(' to ');

/** Flags with their defaults, as they begin a row. */
function flags(table: FlagTable, ...names: readonly string[]): string[] {
  return names.map((name) => {
    const spec = table[name];
    return `\`--${name}\` ${spec && defaultText(spec)}`;
  });
}

const server = api.DEFAULT_SERVER_LIMITS;

/** Every limit of an object, in its order, in the unit that its name ends with. `others`: those that are shown otherwise. */
function allOf(limits: object, others: Readonly<Record<string, string>> = {}): string[] {
  return Object.entries(limits).map(([name, value]) => {
    const show = name.endsWith('Ms') ? time : /(?:Bytes|Chars)$/.test(name) ? size : number;
    return others[name] ?? show(Number(value));
  });
}

/** What the rows of each section begin with: the value, or the flag and its default. */
const SECTIONS: Readonly<Record<string, readonly string[]>> = {
  'Data path': flags(LIMIT_FLAGS, ...Object.values(LIMIT_NAMES)),
  'Services that are endpoints of services': ['1', number(MAX_HOPS)],
  'Connections of load balancers': [number(MAX_HEAD_BYTES), time(HEADER_TIMEOUT_MS)],
  'Listeners of removed service ports': [time(LINGER_MS), String(MAX_LINGERING)],
  Source: [
    ...flags(localSource.flags, 'max-msg-size'),
    number(DEFAULT_STATE_LIMITS.maxEntries),
    size(DEFAULT_STATE_LIMITS.maxBytes),
    number(MAX_FIELDS),
  ],
  'State file': allOf(DEFAULT_FILE_LIMITS),
  'Kubernetes API': allOf(DEFAULT_KUBE_LIMITS, {
    watchSeconds: range(...DEFAULT_KUBE_LIMITS.watchSeconds.map((seconds) => seconds * 1000)),
    maxOutageWaitMs: `${time(DEFAULT_KUBE_LIMITS.maxOutageWaitMs)}, or \`--error-delay\`; 20% more or less`,
  }),
  'API server': [
    ...flags(
      toApi.flags,
      'max-watchers',
      'max-api-connections',
      'max-streams',
      'max-request-size',
      'max-history',
    ),
    number(api.MAX_REQUESTS_AHEAD),
    time(server.keepAliveMs),
    time(server.keepAliveTimeoutMs),
    time(server.idleMs),
    time(api.HANDSHAKE_MS),
    time(TLS_POLL_MS),
    time(DEFAULT_INTERVAL_MS),
  ],
  Callout: [
    ...flags(toCallout.flags, 'callout-timeout', 'callout-max-output'),
    '1',
    time(TERM_GRACE_MS),
    size(STDERR_TAIL),
    range(DEFAULT_BACKOFF.initialMs, DEFAULT_BACKOFF.maxMs),
  ],
  'Portal with packet rules': [
    time(portal.WRITE_TIMEOUT_MS),
    time(portal.TAKEN_REPORT_MS),
    time(portal.TRIAL.limitMs),
    time(portal.CANARY_AUDIT.intervalMs),
    time(portal.CANARY_TIMEOUT_MS),
    number(portal.CANARY_MISSES),
    time(portal.ADDRESS_INTERVAL_MS),
    number(portal.MAX_TRIALS),
    range(portal.WRITE_RETRY.initialMs, portal.WRITE_RETRY.maxMs),
    number(portal.MAX_FLOW_ADDRESSES),
    number(portal.MAX_FLOW_COMMANDS),
    time(portal.FLOW_WAIT_MS),
    size(portal.MAX_FLOW_LIST),
    time(portal.LOCK_WAIT_S * 1000),
    size(portal.MAX_RULE_LIST),
    range(portal.IPTABLES_AUDIT.intervalMs, portal.IPTABLES_AUDIT.maxMs),
    time(portal.FULL_AUDIT.intervalMs),
    number(portal.MAX_COMPARISONS),
    range(portal.ROUTE_AUDIT.intervalMs, portal.ROUTE_AUDIT.maxMs),
  ],
  'Portal with addresses on an interface': [
    `${time(portal.WRITE_TIMEOUT_MS)}, and ${time(portal.ADDRESS_WRITE_MS)} for each address`,
    time(portal.CANARY_AUDIT.intervalMs),
    number(portal.PROBES_PER_CHECK),
    `${time(portal.LISTING_INTERVAL_MS)}, or ${1 / portal.LISTING_SHARE} times as long as a listing takes`,
    time(portal.MAX_LINGER_MS),
  ],
  'Addresses on Windows': [
    time(portal.WRITE_TIMEOUT_MS),
    time(windows.USABLE_TIMEOUT_MS),
    range(windows.USABLE_FIRST_WAIT_MS, windows.USABLE_MAX_WAIT_MS),
    number(MAX_SINGLE_FAILURES),
    size(portal.MAX_ADDRESS_LIST),
    time(ledger.BOOT_TOLERANCE_MS),
  ],
  'Configuration file': allOf(CONFIG_LIMITS),
  'HTTP servers': [
    number(http.MAX_HTTP_CONNECTIONS),
    number(http.MAX_WAITING_REQUESTS),
    size(http.MAX_RESPONSE_BYTES),
    time(http.RESPONSE_TIMEOUT_MS),
    size(http.MAX_REQUEST_BYTES),
    time(http.HEADERS_TIMEOUT_MS),
    time(http.REQUEST_TIMEOUT_MS),
    time(http.IDLE_TIMEOUT_MS),
    size(maxHeaderSize),
    '5s',
    ...allOf(REVIEW_LIMITS, { maxTokenChars: number(REVIEW_LIMITS.maxTokenChars) }),
  ],
  'Admin API and status page': [
    number(MAX_HISTORIES),
    `${HISTORY_SAMPLES} samples, ${time(SAMPLE_MS)} apart`,
    number(MAX_ROWS),
    number(MAX_ENDPOINTS),
    number(MAX_LISTED),
    number(MAX_INSPECTED),
    number(MAX_DRAINS),
  ],
  Restart: [
    time(handover.EXCHANGE_LIMIT_MS),
    time(SILENT_MS),
    size(handover.MAX_LINE_BYTES),
    number(MAX_LISTED),
  ],
};

for (const [section, limits] of Object.entries(SECTIONS)) {
  t.test(section, async (t) => {
    const rows = tableRows(page, section).map(([name = '', value = '']) =>
      name.startsWith('`--') ? `${name} ${value}` : value,
    );
    t.strictSame(rows, limits);
  });
}
