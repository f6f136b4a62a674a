/**
 * What to add to the message that there is no such service, when a name was given without its namespace:
 * `; did you mean "shop/cart"?`, or how names are written where none has that name. Otherwise nothing.
 * `names` are those of service ports, `namespace/name[:port]`.
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
