/** The resources that the fake server serves, and where. */
export const RESOURCES = {
  services: { apiVersion: 'v1', kind: 'Service', namespaced: true },
  endpoints: { apiVersion: 'v1', kind: 'Endpoints', namespaced: true },
  nodes: { apiVersion: 'v1', kind: 'Node', namespaced: false },
  events: { apiVersion: 'v1', kind: 'Event', namespaced: true },
  endpointslices: {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    namespaced: true,
  },
} as const;

export type Resource = keyof typeof RESOURCES;

/** What a path of the API names. */
export interface Place {
  readonly resource: Resource;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
}

/** Reads `/api/v1/namespaces/demo/services/web` and the like. Undefined: nothing is there. */
export function readPath(path: string): Place | undefined {
  const [, group, rest] =
    /^\/(?:api\/(v1)|apis\/([^/]+\/[^/]+))\/(.*)$/
      .exec(path)
      ?.filter((part) => part !== undefined) ?? [];
  if (group === undefined || rest === undefined) return undefined;
  const parts = rest.split('/');
  const namespace = parts[0] === 'namespaces' && parts.length > 2 ? parts[1] : undefined;
  const [resource = '', name, ...more] = namespace === undefined ? parts : parts.slice(2);
  if (more.length > 0 || !isResource(resource)) return undefined;
  // Events have a second home since Kubernetes 1.19.
  const home = resource === 'events' && group === 'events.k8s.io/v1' ? 'v1' : group;
  if (RESOURCES[resource].apiVersion !== home) return undefined;
  return { resource, namespace, name };
}

function isResource(text: string): text is Resource {
  return Object.hasOwn(RESOURCES, text);
}
