// Performance states for the two processors of the machine, so that acpi-cpufreq has something to drive. Control and status are
// the scratch register of the second serial port (0x2F8 + 7), which keeps what is written to it and does nothing.
DefinitionBlock ("", "SSDT", 2, "TOKFRG", "CPUFREQ", 1)
{
    External (\_SB.CPUS, DeviceObj)
    External (\_SB.CPUS.C000, ProcessorObj)
    External (\_SB.CPUS.C001, ProcessorObj)

    Scope (\_SB.CPUS)
    {
        Name (SCRA, ResourceTemplate () { Register (SystemIO, 8, 0, 0x2FF, 1) })
        // MHz, mW, two latencies in microseconds, value to write, value to read
        Name (STAT, Package ()
        {
            Package () { 2400, 200, 10, 10, 1, 1 },
            Package () { 1600, 100, 10, 10, 2, 2 },
            Package () {  800,  50, 10, 10, 3, 3 }
        })
    }

    Scope (\_SB.CPUS.C000)
    {
        Method (_PCT) { Return (Package () { \_SB.CPUS.SCRA, \_SB.CPUS.SCRA }) }
        Method (_PSS) { Return (\_SB.CPUS.STAT) }
        Method (_PPC) { Return (0) }
    }

    Scope (\_SB.CPUS.C001)
    {
        Method (_PCT) { Return (Package () { \_SB.CPUS.SCRA, \_SB.CPUS.SCRA }) }
        Method (_PSS) { Return (\_SB.CPUS.STAT) }
        Method (_PPC) { Return (0) }
    }
}
