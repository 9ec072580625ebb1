use super::*;

#[test]
fn software_is_known_by_type_and_by_name() {
    use wgpu::DeviceType::{Cpu, DiscreteGpu, Other};
    assert!(software("anything", Cpu));
    assert!(software("SwiftShader Device (Subzero)", Other));
    assert!(software("llvmpipe (LLVM 15.0.6, 256 bits)", Other));
    assert!(!software("NVIDIA H200", DiscreteGpu));
}

#[test]
fn messages_are_one_line_and_say_what_to_do() {
    for b in ALL {
        for text in [absent(b), impossible(b)] {
            assert!(text.lines().count() == 1 && text.contains("cpu"), "{text}");
        }
    }
}

/// Devices that this machine need not have, made of one that it has.
fn imagined(base: &Found, what: &[(&str, Backend, &'static str)]) -> Vec<Found> {
    let one = |(index, &(name, backend, kind)): (usize, &(&str, Backend, &'static str))| Found {
        index,
        backend,
        name: name.into(),
        kind,
        software: kind == "software gpu",
        unusable: None,
        ..base.clone()
    };
    what.iter().enumerate().map(one).collect()
}

#[test]
fn the_policy() {
    const SLOW: (&str, Backend, &str) = ("SwiftShader Device", Backend::Vulkan, "software gpu");
    const PIPE: (&str, Backend, &str) = ("llvmpipe", Backend::Vulkan, "software gpu");
    const INTEL: (&str, Backend, &str) = ("Iris", Backend::Vulkan, "integrated gpu");
    const NVIDIA: (&str, Backend, &str) = ("RTX", Backend::Vulkan, "discrete gpu");
    const AMD_GL: (&str, Backend, &str) = ("Radeon", Backend::Gl, "discrete gpu");
    let Some(base) = list().into_iter().next() else {
        println!("skipped: no device at all to imagine others from");
        return;
    };
    let choose = |what: &[(&str, Backend, &'static str)], backend, adapter| {
        choose_from(imagined(&base, what), backend, adapter)
    };
    let name = |c: Result<Choice, ExecError>| match c {
        Ok(Choice::Gpu { found, why }) => {
            assert!(why.contains(&found.name), "{why}");
            found.name
        }
        Ok(Choice::Cpu { why }) => {
            assert!(why.contains("CPU executor"), "{why}");
            "cpu".into()
        }
        Err(e) => format!("error: {e}"),
    };
    use Backend::{Auto, Gl, Vulkan};
    let all = [SLOW, PIPE, INTEL, AMD_GL, NVIDIA];
    // Discrete before integrated, Vulkan before GL, software only where asked for.
    assert_eq!(name(choose(&all, Auto, None)), "RTX");
    assert_eq!(name(choose(&all, Gl, None)), "Radeon");
    assert_eq!(name(choose(&[SLOW, PIPE, INTEL], Auto, None)), "Iris");
    assert_eq!(name(choose(&[SLOW, PIPE, INTEL], Vulkan, None)), "Iris");
    assert_eq!(name(choose(&[SLOW, PIPE], Auto, None)), "cpu");
    assert_eq!(name(choose(&[], Auto, None)), "cpu");
    assert_eq!(name(choose(&[SLOW, PIPE], Vulkan, None)), "llvmpipe");
    assert_eq!(
        name(choose(&all, Auto, Some("swift"))),
        "SwiftShader Device"
    );
    assert_eq!(name(choose(&all, Vulkan, Some("2"))), "Iris");
    // The wrong backend's device is not taken.
    let wrong = name(choose(&all, Vulkan, Some("radeon")));
    assert!(
        wrong.starts_with("error: no vulkan device is named") && wrong.contains("Iris"),
        "{wrong}"
    );
    assert!(name(choose(&all, Gl, Some("2"))).starts_with("error"));
    assert!(name(choose(&[SLOW], Gl, None)).contains("no OpenGL device"));
    // A device that cannot run plans says why.
    let mut broken = imagined(&base, &[NVIDIA]);
    broken[0].unusable = Some("it has no compute shaders".into());
    for adapter in [None, Some("rtx")] {
        let text = name(choose_from(broken.clone(), Vulkan, adapter));
        assert!(
            text.contains("RTX") && text.contains("no compute shaders"),
            "{text}"
        );
    }
    assert_eq!(name(choose_from(broken, Auto, None)), "cpu");
}
