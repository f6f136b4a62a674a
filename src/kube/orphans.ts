import type { KubeOrphans } from './events.ts';

/** Which EndpointSlices name services that are not there. Each change costs the same, however many there are. */
export class OrphanBook {
  readonly #services = new Set<string>();
  /** The service that a slice names. */
  readonly #serviceOf = new Map<string, string>();
  /** The slices of services that are not there. */
  readonly #orphans = new Map<string, Set<string>>();
  /** The others. */
  readonly #adopted = new Map<string, Set<string>>();
  #count = 0;

  setService(service: string, present: boolean): void {
    if (present === this.#services.has(service)) return;
    const [from, to] = present ? [this.#orphans, this.#adopted] : [this.#adopted, this.#orphans];
    const slices = from.get(service);
    if (present) this.#services.add(service);
    else this.#services.delete(service);
    if (slices === undefined) return;
    from.delete(service);
    to.set(service, slices);
    this.#count += present ? -slices.size : slices.size;
  }

  /** `service` undefined: the slice is gone, or names none. */
  setSlice(slice: string, service: string | undefined): void {
    const previous = this.#serviceOf.get(slice);
    if (previous === service) return;
    if (previous !== undefined) this.#remove(slice, previous);
    if (service === undefined) return;
    this.#serviceOf.set(slice, service);
    const book = this.#bookOf(service);
    const slices = book.get(service);
    if (slices === undefined) book.set(service, new Set([slice]));
    else slices.add(slice);
    if (book === this.#orphans) this.#count += 1;
  }

  summary(): KubeOrphans {
    for (const [service, slices] of this.#orphans) {
      for (const slice of slices) return { count: this.#count, example: { slice, service } };
    }
    return { count: 0, example: undefined };
  }

  #remove(slice: string, service: string): void {
    const book = this.#bookOf(service);
    const slices = book.get(service);
    this.#serviceOf.delete(slice);
    slices?.delete(slice);
    if (slices?.size === 0) book.delete(service);
    if (book === this.#orphans) this.#count -= 1;
  }

  #bookOf(service: string): Map<string, Set<string>> {
    return this.#services.has(service) ? this.#adopted : this.#orphans;
  }
}
