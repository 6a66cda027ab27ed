import test from 'ava';
import { findCommand } from '../../../scripts/packages.ts';

/** `test`, or `test.skip` if one of these programs is not installed; scripts/test.ts lists the missing ones. */
export function testWith(...names: string[]): typeof test.skip {
  return names.every((name) => findCommand(name) !== undefined) ? test.serial : test.serial.skip;
}
