import { REJECT_COUNTERS, type RejectReason } from '../counters.ts';
import { rejected } from '../events.ts';
import type { ServicePort } from '../core/service-port.ts';
import { addressText } from './addresses.ts';
import type { Incoming } from './incoming.ts';

/** Counts a client that is not served, and says why. `remoteAddress` is empty when it is not known. */
export function countRejected(
  owner: ServicePort,
  reason: RejectReason,
  remoteAddress: string | (() => string),
): void {
  owner.counters[REJECT_COUNTERS[reason]] += 1;
  if (!rejected.hasSubscribers) return;
  rejected.publish({
    servicePort: owner.name,
    protocol: 'TCP',
    remoteAddress: typeof remoteAddress === 'string' ? remoteAddress : remoteAddress(),
    reason,
  });
}

/** Resets a client that cannot be served, and says why. */
export function rejectClient(owner: ServicePort, incoming: Incoming, reason: RejectReason): void {
  countRejected(owner, reason, () => addressText(incoming.remote()));
  incoming.reset();
}
