import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as store from '../store/events.ts';
import type { Health } from './health.ts';
import { Subscriptions } from '../util/channel.ts';

/**
 * Updates health from the events of sources. Returns a function that ends this. Applied states are reported to
 * `Health` directly, by the sink.
 */
export function followSources(health: Health): () => void {
  const subscriptions = new Subscriptions();
  const fine = (): void => health.sourceConnected();
  const away = ({ error }: { error: { code: string } }): void => health.sourceLost(error.code);
  subscriptions.on(store.sourceConnected, ({ source }) => {
    health.sourceNamed(source, false);
    fine();
  });
  subscriptions.on(store.sourceDisconnected, (event) => {
    health.sourceNamed(event.source, false);
    away(event);
  });
  subscriptions.on(store.sourceSynced, ({ source }) => health.sourceNamed(source, true));
  subscriptions.on(file.fileLoaded, fine);
  subscriptions.on(file.fileRecovered, fine);
  subscriptions.on(file.fileInvalid, away);
  subscriptions.on(file.fileReadFailed, away);
  subscriptions.on(kube.kubeNode, ({ ineligible }) =>
    health.nodeEligible(ineligible && INELIGIBLE[ineligible]),
  );
  return () => subscriptions.end();
}

/** Why load balancers should not use a node, by its condition. */
const INELIGIBLE = {
  tainted: 'the node is tainted ToBeDeletedByClusterAutoscaler',
  deleted: 'the node is being deleted',
} as const;

/** The same for events of portals that write rules or addresses. */
export function followPortal(health: Health): () => void {
  const subscriptions = new Subscriptions();
  subscriptions.on(portal.portalWritten, () => health.portalWritten());
  subscriptions.on(portal.portalFailed, ({ portal: kind, error }) => {
    // An invalid service port is one of the data path's problems.
    if (error.servicePort !== undefined) return;
    health.portalFailed(error.code, kind === 'address' ? ADDRESSES : undefined);
  });
  subscriptions.on(portal.portalShared, ({ error }) => health.portalShared(error?.code));
  return () => subscriptions.end();
}

const ADDRESSES = 'the service addresses could not be put on the interface';
