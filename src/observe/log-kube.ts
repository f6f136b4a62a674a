import * as kube from '../kube/events.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the Kubernetes source; those about losing the API are the same for all sources. */
export const KUBE_RULES: readonly LogRule[] = [
  logRule({
    channel: kube.kubeStarted,
    severity: 'info',
    v: 0,
    message: 'The Kubernetes API answers',
    keys: ({ server, origin, context, user, by, proxy, selector }) => ({
      server,
      config: origin,
      ...(context !== '' && { context }),
      user,
      by,
      ...(proxy !== undefined && { proxy }),
      selector,
    }),
  }),
  logRule({
    channel: kube.kubeListed,
    severity: 'info',
    v: 2,
    message: ({ why }) => (why === 'start' ? 'Listed' : 'Listed again'),
    keys: ({ resource, objects, pages, durationMs, why }) => ({
      resource,
      objects,
      pages,
      ms: Math.round(durationMs),
      ...(why !== 'start' && { because: why }),
    }),
  }),
  logRule({
    channel: kube.kubeFailed,
    severity: 'info',
    v: 2,
    message: ({ routine }) => (routine ? 'A watch has to begin anew' : undefined),
    keys: ({ resource, kind, error, retryInMs }) => ({
      resource,
      because: kind,
      err: error.message,
      retryInMs: Math.round(retryInMs),
    }),
  }),
  logRule({
    channel: kube.kubeWatching,
    severity: 'info',
    v: 2,
    message: ({ recovered }) => (recovered ? 'Watching again' : 'Watching'),
    keys: ({ resource }) => ({ resource }),
  }),
  logRule({
    channel: kube.kubeNode,
    severity: 'info',
    v: 0,
    message: ({ ineligible }) =>
      ineligible === undefined ? 'The node stays' : 'The node is about to go: /healthz answers 503',
    keys: ({ node, ineligible }) => ({
      node,
      ...(ineligible !== undefined && { because: ineligible }),
    }),
  }),
  logRule({
    channel: kube.kubeOrphans,
    severity: 'info',
    v: 1,
    message: ({ example }) =>
      example === undefined
        ? 'Every EndpointSlice has its Service now'
        : 'EndpointSlices name Services that are not there, or not for this proxy; they wait for them',
    keys: ({ count, example }) => (example === undefined ? {} : { count, ...example }),
  }),
];
