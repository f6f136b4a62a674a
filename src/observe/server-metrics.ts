import { Counter, Gauge, type Registry } from 'prom-client';
import * as server from '../server/events.ts';
import { httpLimitReached } from '../util/http-limits.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Adds metrics of the API server. They stay at nothing in a program that serves no API. */
export function addServerMetrics(registry: Registry, subscriptions: Subscriptions): void {
  const registers = [registry];
  const watchers = new Gauge({
    name: 'kpng_userspace_api_watchers',
    help: 'Clients that watch now.',
    labelNames: ['api'],
    registers,
  });
  const watches = new Counter({
    name: 'kpng_userspace_api_watches_total',
    help: 'Watch calls that began.',
    labelNames: ['api'],
    registers,
  });
  const changeSets = new Counter({
    name: 'kpng_userspace_api_change_sets_total',
    help: 'Change sets that clients got, counted when their call ends.',
    labelNames: ['api'],
    registers,
  });
  const lagging = new Counter({
    name: 'kpng_userspace_api_lagging_total',
    help: 'Watch calls ended because the client lagged too far behind.',
    registers,
  });
  const refused = new Counter({
    name: 'kpng_userspace_api_refused_total',
    help: 'Clients turned away because a limit was reached.',
    labelNames: ['limit'],
    registers,
  });
  const handshakes = new Counter({
    name: 'kpng_userspace_api_handshake_failures_total',
    help: 'Connections that ended before their TLS handshake was done.',
    registers,
  });
  const http = new Counter({
    name: 'kpng_userspace_http_limit_reached_total',
    help: 'HTTP connections closed because a limit was reached.',
    labelNames: ['limit'],
    registers,
  });
  subscriptions.on(httpLimitReached, ({ limit }) => http.inc({ limit }));
  for (const api of ['local', 'global'] as const) {
    watchers.set({ api }, 0);
    watches.inc({ api }, 0);
    changeSets.inc({ api }, 0);
  }
  subscriptions.on(server.watchStarted, ({ api }) => {
    watchers.inc({ api });
    watches.inc({ api });
  });
  subscriptions.on(server.watchEnded, ({ api, syncs, error }) => {
    watchers.dec({ api });
    changeSets.inc({ api }, syncs);
    if (error?.code === 'KPNG_LIMIT_REACHED') lagging.inc();
  });
  subscriptions.on(server.serverLimitReached, ({ limit }) => refused.inc({ limit }));
  subscriptions.on(server.handshakeFailed, () => handshakes.inc());
}
