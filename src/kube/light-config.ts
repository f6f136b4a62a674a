import type * as configModule from '@kubernetes/client-node/dist/config.js';
import { registerHooks } from 'node:module';

type ConfigModule = typeof configModule;

const CONFIG = '@kubernetes/client-node/dist/config.js';

/** Marks the modules of our copy of the package, which so is another one than that of anybody else. */
const MARK = '?kpng';

/** What KubeConfig needs only to make API clients, which are not made here. */
const FOR_API_CLIENTS: ReadonlySet<string> = new Set(['./gen/index.js', 'undici']);
const STAND_IN = new URL(
  import.meta.url.endsWith('.ts') ? 'no-api-client.ts' : 'no-api-client.js',
  import.meta.url,
).href;

let loading: Promise<ConfigModule> | undefined;

/**
 * Loads KubeConfig of @kubernetes/client-node without the models and methods of the whole Kubernetes
 * API: they cost 60 MB of memory and a third of a second, and are for nothing but
 * `KubeConfig.makeApiClient`, which this copy of the class refuses. The package has no entrance that
 * leaves them out, so a hook does while it is loaded.
 */
export function loadKubeConfigClass(): Promise<ConfigModule['KubeConfig']> {
  loading ??= load();
  return loading.then(({ KubeConfig }) => KubeConfig);
}

async function load(): Promise<ConfigModule> {
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const { parentURL } = context;
      const ours = parentURL?.endsWith(MARK) === true;
      if (ours && FOR_API_CLIENTS.has(specifier)) return next(STAND_IN, context);
      const resolved = next(specifier, context);
      const joins = ours
        ? specifier.startsWith('.')
        : specifier === CONFIG && parentURL === import.meta.url;
      return joins ? { ...resolved, url: `${resolved.url}${MARK}` } : resolved;
    },
  });
  try {
    return await import('@kubernetes/client-node/dist/config.js');
  } finally {
    hooks.deregister();
  }
}
