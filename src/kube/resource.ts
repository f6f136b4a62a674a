import { KpngError } from '../errors.ts';
import type { Json } from './json.ts';

/** `node`: this node, for which more fields are kept. */
export type ResourceName = 'services' | 'endpointslices' | 'nodes' | 'node';

/** A kind of object to list and watch, and the parts to keep. */
export interface Resource<T> {
  readonly name: ResourceName;
  readonly kind: 'Service' | 'EndpointSlice' | 'Node';
  readonly path: string;
  /** Absent: all. */
  readonly labelSelector?: string;
  /** Absent: all. */
  readonly fieldSelector?: string;
  /** Whether metadata is sufficient. Default: no. */
  readonly metadataOnly?: boolean;
  decode(raw: Json): T;
}

/** The watched resources, and the labels and annotations to keep. Patterns are those of `compileGlobs`. */
export interface Selection {
  /** Label value; empty: services without that label. */
  readonly proxyName: string;
  readonly serviceLabels: readonly string[];
  readonly serviceAnnotations: readonly string[];
  readonly nodeLabels: readonly string[];
  readonly nodeAnnotations: readonly string[];
}

/** The labels of nodes that kpng passes on by default. */
export const DEFAULT_NODE_LABELS: readonly string[] = [
  'kubernetes.io/hostname',
  'topology.kubernetes.io/zone',
  'topology.kubernetes.io/region',
];

const HEADLESS = 'service.kubernetes.io/headless';
const PROXY_NAME = 'service.kubernetes.io/service-proxy-name';

/** A valid label value. */
const LABEL_VALUE = /^[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$/;

/**
 * The label selector for Services, as kpng and kube-proxy have it: none with the headless label; with a proxy name
 * services with that label, else those without the label. Throws a usage error for an invalid label value.
 */
export function serviceSelector(proxyName: string): string {
  if (proxyName === '') return `!${HEADLESS},!${PROXY_NAME}`;
  if (!LABEL_VALUE.test(proxyName)) {
    throw new KpngError(
      'KPNG_USAGE',
      `--service-proxy-name ${JSON.stringify(proxyName)}: not a label value (letters, digits, -, _ ` +
        'and ., beginning and ending with a letter or digit, at most 63)',
    );
  }
  return `!${HEADLESS},${PROXY_NAME}=${proxyName}`;
}
