import type { ServiceChange, ServiceDelta } from './local-deltas.ts';
import type { Entry, LocalEndpoint } from './stored.ts';

/** What a change set is made of. Each list is gone through more than once, and may be made meanwhile. */
export interface LocalChanges {
  /** In order of the services' paths. */
  readonly services: Iterable<ServiceChange>;
  /** In order of the endpoints' paths. */
  readonly endpoints: Iterable<ServiceDelta>;
  /** It leads from nothing to a state: nothing can have been deleted. */
  readonly complete: boolean;
}

/**
 * The operations in kpng's order: services come before their endpoints and go after them. Within a
 * step, what is set is in order of its path, what is deleted in the opposite order.
 */
export function* framesOf({
  services,
  endpoints,
  complete,
}: LocalChanges): Generator<Buffer, void, undefined> {
  const gone: Entry[] = [];
  for (const { service, removed } of services) {
    if (service !== undefined) yield service.local().frame;
    if (removed !== undefined) gone.push(removed.local());
  }
  const deleted = complete ? [] : deletedEndpoints(endpoints);
  for (const each of deleted) if (!each.named) yield each.deletion();
  const withAnonymous: ServiceDelta[] = [];
  for (const delta of endpoints) {
    yield* setFrames(delta, true);
    if (hasAnonymous(delta)) withAnonymous.push(delta);
  }
  for (const each of deleted) if (each.named) yield each.deletion();
  for (const delta of withAnonymous) yield* setFrames(delta, false);
  for (const each of gone.reverse()) yield each.deletion();
}

/** The frames that set endpoints with, or without a pod's name; of a whole service in one piece. */
function* setFrames(delta: ServiceDelta, named: boolean): Generator<Buffer, void, undefined> {
  if (delta.whole === undefined) {
    for (const each of delta.sets) if (each.named === named) yield each.frame;
    return;
  }
  const frames = delta.whole.frames(named);
  if (frames.length > 0) yield frames;
}

function hasAnonymous({ whole, sets }: ServiceDelta): boolean {
  return whole === undefined ? sets.some(({ named }) => !named) : whole.frames(false).length > 0;
}

function deletedEndpoints(deltas: Iterable<ServiceDelta>): readonly LocalEndpoint[] {
  const ascending: LocalEndpoint[] = [];
  for (const { deletes } of deltas) ascending.push(...deletes.toReversed());
  return ascending.reverse();
}
