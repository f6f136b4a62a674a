/** What is watched, and what of it is passed on. Patterns are those of `compileGlobs`. */
export interface Selection {
  /** Label value; empty: services without that label. */
  readonly proxyName: string;
  readonly serviceLabels: readonly string[];
  readonly serviceAnnotations: readonly string[];
  readonly nodeLabels: readonly string[];
  readonly nodeAnnotations: readonly string[];
}

/** The labels of nodes that kpng passes on unless told otherwise. */
export const DEFAULT_NODE_LABELS: readonly string[] = [
  'kubernetes.io/hostname',
  'topology.kubernetes.io/zone',
  'topology.kubernetes.io/region',
];
