import { type Element, Elements } from '../../src/portal/rules/elements.ts';

/** Removes and adds elements, each of which has an owner of its own. */
export function update(
  elements: Elements,
  remove: readonly Element[],
  add: readonly Element[],
): void {
  for (const { set, key } of remove) elements.set(`${set} ${key}`, []);
  for (const element of add) elements.set(`${element.set} ${element.key}`, [element]);
}

export function elementsOf(...add: readonly Element[]): Elements {
  const elements = new Elements();
  update(elements, [], add);
  return elements;
}
