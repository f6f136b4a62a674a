/** The message about a file that recognisably contains something other than a state. */
export function foreignKind(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { apiVersion, kind } = value as Readonly<Record<string, unknown>>;
  if (typeof apiVersion !== 'string' || typeof kind !== 'string') return undefined;
  const shown = `kind: ${JSON.stringify(kind.slice(0, 64))}`;
  if (/^(?:KubeProxy|UserspaceProxy)Configuration$/.test(kind)) {
    return `this is a configuration file (${shown}), not a state file; give it to --config`;
  }
  return (
    `this is a Kubernetes manifest (${shown}), not a state file, which has a list of services (docs/reference/` +
    'state-file.md); apply it to a cluster and use the source kube, or save the state of the cluster with kube to-file'
  );
}
