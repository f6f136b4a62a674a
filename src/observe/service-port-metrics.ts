import { CONNECT_ERROR_CAUSES, CONNECT_SECONDS_BUCKETS } from '../proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { label, type Family } from './exposition.ts';

/**
 * Metrics of each service port. Those that most service ports never touch (errors, retries,
 * histograms) appear once they are not zero, so that ten thousand idle services make a small page.
 */
export const SERVICE_PORT_FAMILIES: readonly Family<ServicePortSnapshot>[] = [
  {
    name: 'kpng_userspace_connections_total',
    type: 'counter',
    help: 'TCP connections accepted and UDP sessions begun.',
    write: ({ counters }, labels, out) => out.sample(labels, counters.connections),
  },
  {
    name: 'kpng_userspace_connections_active',
    type: 'gauge',
    help: 'TCP connections and UDP sessions that are being relayed.',
    write: ({ counters }, labels, out) => out.sample(labels, counters.active),
  },
  {
    name: 'kpng_userspace_bytes_total',
    type: 'counter',
    help: 'Bytes carried. In: from clients to endpoints.',
    write({ counters }, labels, out) {
      out.sample(`${labels},direction="in"`, counters.bytesIn);
      out.sample(`${labels},direction="out"`, counters.bytesOut);
    },
  },
  {
    name: 'kpng_userspace_datagrams_total',
    type: 'counter',
    help: 'UDP datagrams carried. In: from clients to endpoints.',
    write({ protocol, counters }, labels, out) {
      if (protocol !== 'UDP') return;
      out.sample(`${labels},direction="in"`, counters.datagramsIn);
      out.sample(`${labels},direction="out"`, counters.datagramsOut);
    },
  },
  {
    name: 'kpng_userspace_datagrams_dropped_total',
    type: 'counter',
    help: 'UDP datagrams that could not be passed on, either way.',
    write: ({ counters }, labels, out) => ifAny(counters.datagramsDropped, labels, out),
  },
  {
    name: 'kpng_userspace_connect_seconds',
    type: 'histogram',
    help: 'Time that a successful connection to an endpoint took.',
    write({ counters: { connectSeconds } }, labels, out) {
      const total = connectSeconds.counts.reduce((sum, count) => sum + count, 0);
      if (total === 0) return;
      let below = 0;
      for (const [index, bound] of CONNECT_SECONDS_BUCKETS.entries()) {
        below += connectSeconds.counts[index] ?? 0;
        out.sample(`${labels},le="${bound}"`, below, '_bucket');
      }
      out.sample(`${labels},le="+Inf"`, total, '_bucket');
      out.sample(labels, connectSeconds.sum, '_sum');
      out.sample(labels, total, '_count');
    },
  },
  {
    name: 'kpng_userspace_connect_errors_total',
    type: 'counter',
    help: 'Failed attempts to connect to an endpoint, by cause.',
    write({ counters: { connectErrors } }, labels, out) {
      for (const cause of CONNECT_ERROR_CAUSES) {
        ifAny(connectErrors[cause], `${labels},cause="${cause}"`, out);
      }
    },
  },
  {
    name: 'kpng_userspace_retries_total',
    type: 'counter',
    help: 'Attempts to connect after the first of a connection.',
    write: ({ counters }, labels, out) => ifAny(counters.retries, labels, out),
  },
  {
    name: 'kpng_userspace_rejected_total',
    type: 'counter',
    help: 'Clients turned away, by reason.',
    write({ counters }, labels, out) {
      ifAny(counters.rejectedNoEndpoint, `${labels},reason="no-endpoint"`, out);
      ifAny(counters.rejectedDrained, `${labels},reason="drained"`, out);
      ifAny(counters.rejectedConnectFailed, `${labels},reason="connect-failed"`, out);
      ifAny(counters.rejectedLimit, `${labels},reason="limit"`, out);
      ifAny(counters.rejectedSource, `${labels},reason="source"`, out);
      ifAny(counters.rejectedHoldTimeout, `${labels},reason="hold-timeout"`, out);
    },
  },
  {
    name: 'kpng_userspace_connections_held',
    type: 'gauge',
    help: 'TCP clients that wait until there is an endpoint.',
    write({ counters }, labels, out) {
      if (counters.held + counters.heldTotal > 0) out.sample(labels, counters.held);
    },
  },
  {
    name: 'kpng_userspace_connections_held_total',
    type: 'counter',
    help: 'TCP clients that have had to wait until there is an endpoint.',
    write: ({ counters }, labels, out) => ifAny(counters.heldTotal, labels, out),
  },
  {
    name: 'kpng_userspace_half_close_timeouts_total',
    type: 'counter',
    help: 'Connections closed because one direction stayed silent after the other had ended.',
    write: ({ counters }, labels, out) => ifAny(counters.halfCloseTimeouts, labels, out),
  },
  {
    name: 'kpng_userspace_udp_idle_timeouts_total',
    type: 'counter',
    help: 'UDP sessions ended because nothing passed.',
    write: ({ counters }, labels, out) => ifAny(counters.idleTimeouts, labels, out),
  },
  {
    name: 'kpng_userspace_udp_sessions_evicted_total',
    type: 'counter',
    help: 'UDP sessions ended to make room for new ones.',
    write: ({ counters }, labels, out) => ifAny(counters.sessionsEvicted, labels, out),
  },
  {
    name: 'kpng_userspace_endpoints',
    type: 'gauge',
    help: 'Endpoints behind the service port.',
    write: ({ endpoints }, labels, out) => out.sample(labels, endpoints),
  },
  {
    name: 'kpng_userspace_listeners',
    type: 'gauge',
    help: 'Addresses listened on, or failed to, by state.',
    write({ listeners }, labels, out) {
      const failed = listeners.reduce((sum, { state }) => sum + Number(state === 'failed'), 0);
      out.sample(`${labels},state="listening"`, listeners.length - failed);
      ifAny(failed, `${labels},state="failed"`, out);
    },
  },
];

type Out = Parameters<Family<ServicePortSnapshot>['write']>[2];

function ifAny(value: number, labels: string, out: Out): void {
  if (value !== 0) out.sample(labels, value);
}

/** The labels of a service port, from `namespace/name:port` or `namespace/name`. */
export function servicePortLabels({ name, protocol }: ServicePortSnapshot): string {
  return nameLabels(name, protocol);
}

/** The same of its name and protocol. */
export function nameLabels(name: string, protocol: string): string {
  const slash = name.indexOf('/');
  const colon = name.indexOf(':', slash + 1);
  const service = colon === -1 ? name.slice(slash + 1) : name.slice(slash + 1, colon);
  const port = colon === -1 ? '' : name.slice(colon + 1);
  return [
    label('namespace', slash === -1 ? '' : name.slice(0, slash)),
    label('service', service),
    label('port', port),
    `protocol="${protocol}"`,
  ].join(',');
}
