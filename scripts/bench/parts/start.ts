import type { Bench, Place } from '../bench.ts';
import { compare } from '../report.ts';
import { storeOf } from '../store/store.ts';

/** Time from the start of `serve` to the first response of /readyz, with many packages and with none. */
export async function start(bench: Bench): Promise<void> {
  const time = (place: Place) => async () => {
    const peer = await bench.serve(place);
    await peer.stop();
    return peer.startedIn;
  };
  await compare({ title: 'start', unit: 's', bar: '≤ 0.5 s' }, bench.quick ? 3 : 9, {
    [`${bench.many} packages`]: time(await storeOf(bench, bench.many)),
    'an empty store': time(await bench.place('start-empty')),
  });
}
