import { KpngError } from '../errors.ts';

/** What is watched, and what of it is passed on. Patterns are those of `compileGlobs`. */
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

/** What a label's value may be. */
const LABEL_VALUE = /^[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$/;

/**
 * Which Services are asked for, as kpng and kube-proxy ask: none with the headless label; with a proxy
 * name those that bear it, else those that bear no such label. Throws a usage error for a name
 * that no label can have.
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
