import type { Endpoint } from '../api/generated/localv1/api.ts';
import type { LocalChange } from '../store/local-view.ts';

/** Services without an endpoint that their traffic policy lets this node use. */
export interface NoLocalEndpoints {
  /** Of those with internalTrafficPolicy Local. */
  readonly internal: number;
  /** Of those with externalTrafficPolicy Local. */
  readonly external: number;
}

/** Counts them as they change; nothing is done for services that do not. */
export class LocalPolicyBook {
  readonly #internal = new Set<string>();
  readonly #external = new Set<string>();

  /** The counts after a change set. */
  take({ view, changed }: LocalChange): NoLocalEndpoints {
    for (const key of changed) {
      const { service, endpoints } = view.get(key) ?? {};
      const lacks = (isLocal: boolean | undefined, scope: 'internal' | 'external'): boolean =>
        isLocal === true && ![...(endpoints?.values() ?? [])].some((each) => isIn(each, scope));
      put(this.#internal, key, lacks(service?.internalTrafficToLocal, 'internal'));
      put(this.#external, key, lacks(service?.externalTrafficToLocal, 'external'));
    }
    return { internal: this.#internal.size, external: this.#external.size };
  }
}

/** An endpoint without scopes may be used for all traffic. */
function isIn({ scopes }: Endpoint, scope: 'internal' | 'external'): boolean {
  return scopes?.[scope] ?? true;
}

function put(keys: Set<string>, key: string, isIn: boolean): void {
  if (isIn) keys.add(key);
  else keys.delete(key);
}
