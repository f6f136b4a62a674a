/**
 * A hint for an unknown service name that lacks its namespace: `; did you mean "shop/cart"?`, or the format of names
 * when none matches. Otherwise empty. `names` are those of service ports, `namespace/name[:port]`.
 */
export function nameHint(given: string, names: Iterable<string>): string {
  if (given.includes('/')) return '';
  for (const name of names) {
    const [namespace = '', rest = ''] = name.split('/');
    if (rest === given || rest.startsWith(`${given}:`)) {
      return `; did you mean ${JSON.stringify(`${namespace}/${given}`)}?`;
    }
  }
  return '; services are named namespace/name';
}
