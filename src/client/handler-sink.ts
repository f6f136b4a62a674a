import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { LocalChange, LocalSink, LocalView } from '../store/local-view.ts';

/** A service with its endpoints: as in kpng's full-state callbacks, and with the keys. */
export interface ServiceItem {
  /** `namespace/name`. */
  readonly key: string;
  readonly service: Service;
  /** In order of their keys. Empty for a service without endpoints. */
  readonly endpoints: readonly Endpoint[];
  /** Key of the endpoint at the same index in `endpoints`: the pod's name, or a hash. */
  readonly endpointKeys: readonly string[];
}

/**
 * Called with the whole state at each Sync: every service that this node needs, in path order. Items are created
 * during each iteration and may be kept; the iterable itself is valid until the handler is done.
 *
 * `changed` holds the keys of the services that differ from the last call, or on which an earlier call failed. The
 * next change set is requested when the handler (its promise) is done. If it throws or rejects, it is called again,
 * after a delay or with the next change set.
 */
export type Handler = (
  items: Iterable<ServiceItem>,
  changed: ReadonlySet<string>,
) => void | Promise<void>;

/** A sink that calls a handler. */
export function handlerSink(handler: Handler): LocalSink {
  return {
    async sync({ view, changed }: LocalChange): Promise<void> {
      await handler({ [Symbol.iterator]: () => items(view) }, changed);
    },
  };
}

function* items(view: LocalView): Generator<ServiceItem, void, undefined> {
  for (const { key, service, endpoints } of view.entries()) {
    yield { key, service, endpoints: [...endpoints.values()], endpointKeys: [...endpoints.keys()] };
  }
}
