/**
 * Finds the names whose part of a transaction is not taken, by halving.
 *
 * `accepted` says whether the parts of these names would be taken together. Returns undefined when
 * not even nothing is taken: then no name is to blame. After `maxTrials` trials every name that has
 * not been cleared counts as bad, so that the others can be served.
 */
export async function findUnacceptable(
  names: readonly string[],
  accepted: (names: readonly string[]) => Promise<boolean>,
  maxTrials: number,
): Promise<string[] | undefined> {
  if (!(await accepted([]))) return undefined;
  let trials = 0;
  const bad: string[] = [];
  const pending: (readonly string[])[] = names.length === 0 ? [] : [names];
  for (let group = pending.pop(); group !== undefined; group = pending.pop()) {
    if (trials >= maxTrials) {
      for (const name of group) bad.push(name);
      continue;
    }
    trials += 1;
    if (await accepted(group)) continue;
    if (group.length === 1) {
      // Once more: a tool that fails now and then must not put the blame on whoever comes by.
      trials += 1;
      if (!(await accepted(group))) bad.push(...group);
    } else {
      const middle = group.length >> 1;
      pending.push(group.slice(middle), group.slice(0, middle));
    }
  }
  return bad;
}
