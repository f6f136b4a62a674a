import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as store from '../store/events.ts';
import type { Health } from './health.ts';
import { Subscriptions } from '../util/channel.ts';

/**
 * Updates health from the events of sources and of portals that write rules or addresses. Returns a function that ends
 * this. Applied states are reported to `Health` directly, by the sink.
 */
export function followEvents(health: Health): () => void {
  const subscriptions = new Subscriptions();
  const fine = (): void => health.change({ sourceLost: undefined });
  const away = ({ error: { code } }: { error: { code: string } }): void =>
    health.failing('sourceLost', { code });
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
    health.change({ nodeIneligible: ineligible && INELIGIBLE[ineligible] }),
  );
  subscriptions.on(portal.portalWritten, () => health.change({ portalFailing: undefined }));
  subscriptions.on(portal.portalFailed, ({ portal: kind, error: { code, servicePort } }) => {
    // An invalid service port is one of the data path's problems.
    if (servicePort !== undefined) return;
    health.failing('portalFailing', { code, what: kind === 'address' ? ADDRESSES : RULES });
  });
  subscriptions.on(portal.portalShared, ({ error }) => {
    if (error === undefined) health.change({ portalShared: undefined });
    else health.failing('portalShared', { code: error.code });
  });
  return () => subscriptions.end();
}

/** Why load balancers should not use a node, by its condition. */
const INELIGIBLE = {
  tainted: 'the node is tainted ToBeDeletedByClusterAutoscaler',
  deleted: 'the node is being deleted',
} as const;

const RULES = 'the packet rules could not be written';
const ADDRESSES = 'the service addresses could not be put on the interface';
